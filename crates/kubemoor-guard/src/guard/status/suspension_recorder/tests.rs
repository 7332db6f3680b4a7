use serde_json::json;

use super::*;

fn entry(verdict: &str, detail: &str) -> LedgerEntry {
    serde_json::from_value(json!({
        "id": "1", "time": "2026-11-01T00:00:00Z", "kind": "act", "cluster": "c", "namespace": "shop",
        "object": {"group": GROUP, "kind": KIND, "namespace": "shop", "name": "web"},
        "user": "alice", "groups": [], "verdict": verdict, "reason": "", "detail": detail, "fields": [],
        "moreFields": 0, "uid": "",
    }))
    .unwrap()
}

fn seen(words: Option<&str>, is_change: bool) -> SuspensionSeen {
    let release = Some(ReleaseId { namespace: "shop".into(), name: "web".into() });
    let (uid, words, at) = ("u".to_owned(), words.map(str::to_owned), Timestamp::UNIX_EPOCH);
    SuspensionSeen { release, uid, generation: 2, words, is_change, at }
}

#[test]
fn what_waits_for_the_ledger_is_the_last_of_each_release_and_bounded() {
    let mut waiting = WaitingSuspensions::default();
    waiting.add(vec![seen(Some("INC-7"), true)]);
    waiting.add(vec![seen(Some("INC-8"), false)]);
    let kept: Vec<_> = waiting.last.values().cloned().collect();
    assert_eq!(kept, [seen(Some("INC-8"), true)]);
    let of = |number: usize| {
        let release = ReleaseId { namespace: "shop".into(), name: format!("web-{number}").into() };
        SuspensionSeen { release: Some(release), ..seen(Some(""), false) }
    };
    waiting.add((0..2 * MOST).map(of).collect());
    assert_eq!(waiting.last.len(), MOST);
    // One that waits may still change.
    waiting.add(vec![seen(None, true)]);
    assert!(waiting.last.values().any(|it| it.words.is_none()));
}

#[test]
fn suspension_that_a_review_told_of_needs_no_other_row() {
    let check = |seen: SuspensionSeen, last: Option<LedgerEntry>, expected: bool| {
        assert_eq!(seen.is_told_by(last.as_ref()), expected, "{seen:?} {last:?}");
    };
    for is_change in [false, true] {
        check(seen(Some("INC-7"), is_change), Some(entry("Suspend", "INC-7")), true);
        check(seen(Some("INC-7"), is_change), Some(entry("Suspend", "INC-8")), false);
        check(seen(Some("INC-7"), is_change), Some(entry("Resume", "")), false);
        check(seen(Some(""), is_change), None, false);
        check(seen(None, is_change), Some(entry("Resume", "")), true);
    }
    check(seen(None, true), None, false);
    check(seen(None, true), Some(entry("Suspend", "")), false);
    check(seen(None, false), None, true);
}

#[test]
fn release_that_is_not_suspended_at_the_start_ended_a_suspension_that_the_ledger_has() {
    assert!(!seen(None, false).is_told_by(Some(&entry("Suspend", "INC-7"))));
}
