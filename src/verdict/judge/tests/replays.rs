//! What a replay makes of recorded edits is what would have become of them.

use super::*;
use crate::verdict::facts::Facts;
use crate::verdict::recorded::{self, RecordedFacts, Recording};
use crate::verdict::replay::{PastEdit, Replay, Replayed, Unreplayable};

/// The policies under which an edit is recorded that is then judged by those of its case.
const RECORDING: [&str; 3] = [
    "",
    "ignore: [{paths: ['*']}]",
    "seal: [{paths: [/spec/template/spec]}, {paths: [/metadata/annotations]}]",
];

/// The rule of a case, tried on what is recorded of it under other policies.
#[track_caller]
pub(super) fn check_replay(case: &Case<'_>) {
    let would_be = case.verdict();
    for recording in RECORDING {
        let Some(replayed) = replay(case, recording) else {
            let is_addition = would_be.grounds.iter().flat_map(|it| &it.fields).all(|field| field.added);
            assert!(
                would_be.outcome == Outcome::Allow || is_addition,
                "nothing is recorded under {recording:?}"
            );
            continue;
        };
        if let Ok(Replayed { verdict, .. }) = replayed {
            assert_eq!(brief(&verdict), brief(&would_be), "recorded under {recording:?}");
        }
    }
}

/// What is said of an edit that does not plainly pass.
fn brief(verdict: &Verdict) -> String {
    if verdict.outcome == Outcome::Allow { "Allow".to_owned() } else { told(verdict).replace('?', "") }
}

/// What a replay by the policies of `case` makes of its edit as it is recorded under another policy; none where
/// nothing is recorded.
fn replay(case: &Case<'_>, recording: &str) -> Option<Result<Replayed, Unreplayable>> {
    let accepted = (!recording.is_empty()).then(|| policy("recording", recording));
    let resolver = book_of(EditsMode::Warn, accepted);
    let now = case.now.parse().unwrap();
    let facts = case.judged(&resolver).1?;
    let object = web();
    let kept =
        Recording { object: &object, scale: case.scale, manager: "kubectl-edit", resolver: &resolver, now };
    let text = recorded::text(&Facts::Edit(facts), kept);
    assert!(text.len() <= recorded::MOST, "{text}");
    let facts: RecordedFacts = serde_json::from_str(&text).unwrap();
    let accepted = (!case.policy.is_empty()).then(|| policy("shop", case.policy));
    let hour = std::time::Duration::from_secs(3600);
    let defaults = Policy::new(case.mode, crate::model::DriftMode::Report, hour);
    let mut replay = Replay::new(defaults, accepted.into_iter().collect());
    let actor = Actor { user: case.user.to_owned(), ..Actor::default() };
    let (operation, object, facts) = (case.operation, &object, &facts);
    Some(replay.verdict(PastEdit {
        time: now,
        operation,
        object,
        actor: &actor,
        has_all_groups: true,
        facts,
    }))
}

fn told_of(replayed: Option<Result<Replayed, Unreplayable>>) -> String {
    match replayed {
        None => "unrecorded".to_owned(),
        Some(Err(why)) => why.as_str().to_owned(),
        Some(Ok(replayed)) => brief(&replayed.verdict),
    }
}

#[test]
fn recorded_change_can_be_replayed_under_policies_added_later() {
    let image = "/spec/template/spec/containers";
    let changed = || live(&[(image, json!([{"name": "app", "image": "app:2"}]))]);
    let path = "/spec/template/spec/containers/[name=app]/image";
    for (policy, user, wanted) in [
        ("edits: Deny", "alice", format!("Deny drift {path}")),
        ("edits: Record", "alice", format!("Record drift {path}")),
        ("edits: Revert", "alice", format!("Revert drift {path}")),
        ("edits: Allow", "alice", "Allow".to_owned()),
        ("exempt: [{kind: User, name: alice}]", "alice", format!("Record exempt {path}")),
        ("exempt: [{kind: User, name: alice}]", "bob", format!("Deny drift {path}")),
        ("ignore: [{paths: ['/spec/template/spec/containers/*/image']}]", "alice", "Allow".to_owned()),
        ("ignore: [{target: {labelSelector: tier=web}, paths: ['*']}]", "alice", "Allow".to_owned()),
        ("ignore: [{target: {labelSelector: tier=db}, paths: ['*']}]", "alice", format!("Deny drift {path}")),
        ("ignore: [{target: {annotationSelector: a=b}, paths: ['*']}]", "alice", "Allow".to_owned()),
        ("ignore: [{target: {version: v2}, paths: ['*']}]", "alice", format!("Deny drift {path}")),
        (
            "ignore: [{target: {labelSelector: app.kubernetes.io/managed-by=Helm}, paths: ['*']}]",
            "alice",
            "Allow".to_owned(),
        ),
        ("ignore: [{paths: [/spec/template/spec/containers/0/image]}]", "alice", "place".to_owned()),
        ("ignore: [{paths: [/spec/template/spec/volumes/0/name]}]", "alice", format!("Deny drift {path}")),
        ("seal: [{paths: [/spec/template/spec]}]", "alice", format!("Deny drift {path}")),
        ("releases: {names: [other]}\nedits: Allow", "alice", format!("Deny drift {path}")),
        (
            "releases: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}\nedits: Record",
            "alice",
            format!("Record drift {path}"),
        ),
        (
            "allow: [{name: noon, paths: ['*'], schedule: {cron: '0 12 * * *', duration: 10m}}]",
            "alice",
            format!("Record allowed {path}"),
        ),
        (
            "allow: [{name: night, paths: ['*'], schedule: {cron: '0 2 * * *', duration: 10m}}]",
            "alice",
            format!("Deny drift {path}"),
        ),
    ] {
        let manifest =
            MANIFEST.replace("{name: web}", "{name: web, labels: {tier: web}, annotations: {a: b}}");
        let case =
            Case { claims: vec![deployed(&manifest)], policy, user, new: Some(changed()), ..Case::default() };
        for recording in ["", "ignore: [{paths: ['*']}]", "exempt: [{kind: User, name: alice}]"] {
            assert_eq!(told_of(replay(&case, recording)), wanted, "{policy}, recorded under {recording:?}");
        }
    }
}

#[test]
fn replay_gives_no_verdict_when_it_depends_on_dropped_values() {
    let long = json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule", "value": "x".repeat(200)}]);
    let declared = MANIFEST.replace(
        "tolerations: []",
        &format!(
            "tolerations: {}",
            json!([{"key": "a", "operator": "Exists", "effect": "NoExecute", "value": "x".repeat(200)}])
        ),
    );
    let tolerations = "/spec/template/spec/tolerations";
    let with = |value: &Value| Some(live(&[(tolerations, value.clone())]));
    let below = "ignore: [{paths: ['/spec/template/spec/tolerations/*/effect']}]";
    let case =
        |policy| Case { claims: vec![deployed(&declared)], new: with(&long), policy, ..Case::default() };
    assert_eq!(told_of(replay(&case(below), "")), "value");
    let whole = "ignore: [{paths: [/spec/template/spec/tolerations]}]";
    assert_eq!(told_of(replay(&case(whole), "")), "Allow");
    assert_eq!(told_of(replay(&case(""), "")), format!("Deny drift {tolerations}"));
    // What passes may have added something that a seal would have caught.
    let sealed = "ignore: [{paths: [/spec/replicas]}]\nseal: [{paths: [/spec/template/spec]}]";
    let scaling = Case { policy: sealed, new: scaled(5), ..Case::default() };
    assert_eq!(told_of(replay(&scaling, "")), "seal");
    let same = "ignore: [{paths: ['*']}]\nseal: [{paths: [/spec/template/spec]}]";
    assert_eq!(told_of(replay(&scaling, same)), "Allow");
    // Whether Helm wrote it only a dry run could have told.
    let pending = || second(Status::PendingUpgrade, MANIFEST, MANIFEST);
    let during = Case { claims: vec![pending()], new: scaled(5), ..Case::default() };
    assert_eq!(told_of(replay(&during, "")), "unsettled");
    let settled = live(&[]);
    let during = Case { evidence: Evidence::Canonical(&settled), ..during };
    assert_eq!(told_of(replay(&during, "")), "Deny drift /spec/replicas");
}

#[test]
fn a_group_counts_only_where_all_groups_are_known() {
    let case = Case { policy: "exempt: [{kind: Group, name: ops}]", new: scaled(5), ..Case::default() };
    let resolver = book_of(EditsMode::Warn, None);
    let (object, now) = (web(), case.now.parse().unwrap());
    let facts = Facts::Edit(case.judged(&resolver).1.unwrap());
    let kept = Recording { object: &object, scale: false, manager: "", resolver: &resolver, now };
    let facts = serde_json::from_str(&recorded::text(&facts, kept)).unwrap();
    let mut replay = Replay::new(resolver.defaults().as_ref().clone(), vec![policy("shop", case.policy)]);
    for (groups, has_all_groups, wanted) in [
        (vec!["ops".to_owned()], true, "Record exempt /spec/replicas"),
        (vec!["dev".to_owned()], true, "Warn drift /spec/replicas"),
        (vec!["dev".to_owned()], false, "groups"),
    ] {
        let actor = Actor { user: "alice".to_owned(), groups, ..Actor::default() };
        let (operation, object, facts) = (Operation::Update, &object, &facts);
        let past = PastEdit { time: now, operation, object, actor: &actor, has_all_groups, facts };
        assert_eq!(told_of(Some(replay.verdict(past))), wanted);
    }
}

#[test]
fn recording_keeps_no_secret_values_and_no_long_values() {
    let manifest = "apiVersion: v1\nkind: Secret\nmetadata: {name: web, annotations: {note: hunter2}}\ndata: {a: aHVudGVyMg==}";
    let release = deployed(manifest);
    let object = ObjectId { group: String::new(), kind: "Secret".to_owned(), ..web() };
    let secret =
        |value: &str| json!({"metadata": {"name": "web", "namespace": "shop"}, "data": {"a": value}});
    let (old, new) = (secret("aHVudGVyMg=="), secret("aHVudGVyMw=="));
    let resolver = book_of(EditsMode::Warn, None);
    let actor = Actor::default();
    let edit = Edit {
        operation: Operation::Update,
        actor: &actor,
        object: &object,
        old: Some(&old),
        new: Some(&new),
        version: Some("v1"),
        scale: false,
        owner: Owner::Release(super::release("shop", "web")),
        dry_run: false,
        field_manager: "",
        circumstances: &Circumstances::default(),
    };
    let rules = Rules { resolver: &resolver, own_account: None };
    let now = "2026-05-01T12:05:00Z".parse().unwrap();
    let (_, facts) = judge_with_facts(&edit, &[Arc::new(release)], &rules, Evidence::None, now);
    let kept = Recording { object: &object, scale: false, manager: "", resolver: &resolver, now };
    let text = recorded::text(&Facts::Edit(facts.unwrap()), kept);
    assert!(text.contains("/data/a") && !text.contains("aHVudGVy") && !text.contains("hunter2"), "{text}");
}

#[test]
fn more_than_is_kept_is_said_to_be_cut() {
    let annotations: serde_json::Map<String, Value> =
        (0..60).map(|index| (format!("a{index}"), "x".repeat(200).into())).collect();
    let manifest =
        MANIFEST.replace("{name: web}", &json!({"name": "web", "annotations": annotations}).to_string());
    let case = Case { claims: vec![deployed(&manifest)], new: scaled(5), ..Case::default() };
    assert_eq!(told_of(replay(&case, "")), "cut");
}
