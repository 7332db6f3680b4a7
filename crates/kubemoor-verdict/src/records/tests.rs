use std::time::Duration;

use crate::records::*;
use crate::sample_policies::policy;
use crate::sample_releases::{SampleRecord, assembled};
use crate::samples::resolver;
use kubemoor_declare::model::EditsMode;
use kubemoor_helm::record::ApplyMethod;
use kubemoor_policy::Policy;
use kubemoor_policy::resolver::{Labels, Policies, PolicyResolver};

fn secret(name: &str) -> ObjectId {
    ObjectId::namespaced("", "Secret", "shop", name)
}

/// The record of revision 1 of `shop/web`, with this manifest.
fn stored(manifest: &str) -> Stored {
    let text = |text: &str| Some(text.to_owned());
    Stored {
        owner: text("helm"),
        name: text("web"),
        version: text("1"),
        status: text("deployed"),
        payload: Ok(Record {
            name: "web".to_owned(),
            namespace: "shop".to_owned(),
            revision: 1,
            status: ReleaseStatus::Deployed,
            manifest: manifest.to_owned(),
            digest: kubemoor_helm::release::digest(manifest),
            values: [0; 32],
            apply_method: ApplyMethod::ServerSide,
            chart: None,
            last_deployed: None,
            deleted: None,
        }),
    }
}

fn changed(change: impl FnOnce(&mut Record)) -> Stored {
    let mut stored = stored("a: 1");
    change(stored.payload.as_mut().unwrap());
    stored
}

fn undecodable() -> Stored {
    Stored { payload: Err(RecordError::Missing { field: "manifest" }), ..stored("") }
}

struct RecordCase<'a> {
    operation: Operation,
    user: &'a str,
    object: &'a str,
    old: Option<Stored>,
    new: Option<Stored>,
    labelled: &'a [&'a str],
    adds_owner: bool,
    being_deleted: bool,
    release: Option<Release>,
    mode: EditsMode,
}

impl Default for RecordCase<'_> {
    fn default() -> Self {
        Self {
            operation: Operation::Update,
            user: "alice",
            object: "sh.helm.release.v1.web.v1",
            old: Some(stored("a: 1")),
            new: Some(stored("a: 1")),
            labelled: &["web"],
            adds_owner: false,
            being_deleted: false,
            release: Some(assembled(SampleRecord::default(), None)),
            mode: EditsMode::Deny,
        }
    }
}

fn index(release: Option<Release>) -> Index {
    let mut index = Index::default();
    release.into_iter().for_each(|release| index.set(release));
    index
}

/// What becomes of the case, as `Outcome reason` and what would be falsified.
#[track_caller]
fn check(case: RecordCase<'_>, wanted: &str, falsified: Option<RecordViolation>) {
    let actor = Actor { user: case.user.to_owned(), ..Actor::default() };
    let labelled: Vec<_> = case.labelled.iter().map(|&name| name.to_owned()).collect();
    let edit = RecordEdit {
        operation: case.operation,
        actor: &actor,
        object: &secret(case.object),
        old: case.old.as_ref(),
        new: case.new.as_ref(),
        labelled: &labelled,
        adds_owner: case.adds_owner,
        being_deleted: case.being_deleted,
    };
    let resolver = resolver(case.mode);
    let rules = Rules { resolver: &resolver, own_account: None };
    let (verdict, found) = judge(&edit, &index(case.release), &rules);
    let told = format!("{} {}", verdict.outcome.as_str(), verdict.reason.as_str());
    assert_eq!((told.as_str(), found), (wanted, falsified));
    assert_eq!(verdict.grounds.is_some(), falsified.is_some());
}

#[track_caller]
fn check_passes(case: RecordCase<'_>) {
    check(case, "Allow record-intact", None);
}

#[track_caller]
fn check_update(new: Stored, falsified: RecordViolation) {
    check(RecordCase { new: Some(new), ..RecordCase::default() }, "Deny record", Some(falsified));
}

#[test]
fn an_object_of_another_name_is_no_record() {
    for object in ["web", "sh.helm.release.v1.web", "sh.helm.release.v1.web.v0", "sh.helm.release.v1.web.v01"]
    {
        let case = RecordCase { object, new: Some(stored("b: 2")), labelled: &[], ..RecordCase::default() };
        check(case, "Allow not-declared", None);
    }
}

#[test]
fn the_manifest_of_an_existing_record_stays() {
    check_update(stored("a: 2"), RecordViolation::Manifest);
    check_passes(RecordCase::default());
    check_passes(RecordCase { old: Some(undecodable()), ..RecordCase::default() });
}

#[test]
fn name_labels_and_payload_stay_in_agreement() {
    let label = |word: &str| Some(word.to_owned());
    check_update(undecodable(), RecordViolation::Disagreement);
    check_update(Stored { owner: None, ..stored("a: 1") }, RecordViolation::Disagreement);
    check_update(Stored { name: label("api"), ..stored("a: 1") }, RecordViolation::Disagreement);
    check_update(Stored { version: label("2"), ..stored("a: 1") }, RecordViolation::Disagreement);
    check_update(Stored { status: label("failed"), ..stored("a: 1") }, RecordViolation::Disagreement);
    check_update(changed(|record| record.name = "api".to_owned()), RecordViolation::Disagreement);
    check_update(changed(|record| record.revision = 2), RecordViolation::Disagreement);
    check_update(changed(|record| record.status = ReleaseStatus::Failed), RecordViolation::Disagreement);
    let broken = || Some(Stored { owner: None, ..stored("a: 1") });
    check_passes(RecordCase { old: broken(), new: broken(), ..RecordCase::default() });
    check_passes(RecordCase { old: broken(), ..RecordCase::default() });
}

#[test]
fn helm_marks_its_own_records() {
    for status in ["superseded", "failed", "uninstalling", "pending-rollback"] {
        let status_of = |record: &mut Record| record.status = status.parse().unwrap();
        let new = Stored { status: Some(status.to_owned()), ..changed(status_of) };
        check_passes(RecordCase { new: Some(new), ..RecordCase::default() });
    }
}

#[test]
fn a_record_that_comes_into_being_may_be_incomplete() {
    let create =
        |new| RecordCase { operation: Operation::Create, old: None, new: Some(new), ..RecordCase::default() };
    check_passes(create(stored("a: 1")));
    // A program that keeps records in parts, or that adds the labels later.
    check_passes(create(undecodable()));
    check_passes(create(Stored { owner: None, name: None, version: None, status: None, ..stored("a: 1") }));
    check_passes(RecordCase { object: "sh.helm.release.v1.web.v2", ..create(stored("")) });
    check_passes(RecordCase { old: Some(undecodable()), new: Some(undecodable()), ..RecordCase::default() });
    check_passes(RecordCase { old: Some(undecodable()), new: Some(stored("a: 1")), ..RecordCase::default() });
    // From then on it agrees.
    check_update(undecodable(), RecordViolation::Disagreement);
}

#[test]
fn the_last_deployed_record_stays_while_the_release_is_installed() {
    let delete = |revision: u64, release: Option<Release>| RecordCase {
        operation: Operation::Delete,
        object: if revision == 1 { "sh.helm.release.v1.web.v1" } else { "sh.helm.release.v1.web.v2" },
        new: None,
        release,
        ..RecordCase::default()
    };
    let one = |status| Some(assembled(SampleRecord { status, ..SampleRecord::default() }, None));
    let second = |status| {
        let latest = SampleRecord { revision: 2, status, ..SampleRecord::default() };
        Some(assembled(latest, Some(SampleRecord::default())))
    };
    let last = Some(RecordViolation::LastDeployed);
    check(delete(1, one(ReleaseStatus::Deployed)), "Deny record", last);
    check(delete(1, second(ReleaseStatus::PendingUpgrade)), "Deny record", last);
    check(delete(1, second(ReleaseStatus::Failed)), "Deny record", last);
    let saying = |status, case: RecordCase<'static>| RecordCase {
        old: Some(changed(|it| it.status = status)),
        ..case
    };
    check_passes(saying(ReleaseStatus::PendingUpgrade, delete(2, second(ReleaseStatus::PendingUpgrade))));
    check_passes(delete(1, second(ReleaseStatus::Deployed)));
    check_passes(saying(ReleaseStatus::Failed, delete(1, one(ReleaseStatus::Failed))));
    check_passes(delete(1, one(ReleaseStatus::Uninstalling)));
    check_passes(delete(1, one(ReleaseStatus::Uninstalled)));
    check_passes(delete(1, None));
    // What is known lags behind Helm: the record itself says that it is the last one by now.
    check(delete(2, one(ReleaseStatus::Deployed)), "Deny record", last);
    check(delete(2, one(ReleaseStatus::Superseded)), "Deny record", last);
    check(delete(2, second(ReleaseStatus::PendingUpgrade)), "Deny record", last);
    let collector = "system:serviceaccount:kube-system:namespace-controller";
    check(RecordCase { user: collector, ..delete(1, one(ReleaseStatus::Deployed)) }, "Allow identity", None);
    check(
        RecordCase { being_deleted: true, ..delete(1, one(ReleaseStatus::Deployed)) },
        "Allow being-deleted",
        None,
    );
}

#[test]
fn last_deployed_record_gets_no_owner_by_which_it_is_collected() {
    let owned = |status| RecordCase {
        adds_owner: true,
        release: Some(assembled(SampleRecord { status, ..SampleRecord::default() }, None)),
        ..RecordCase::default()
    };
    check(owned(ReleaseStatus::Deployed), "Deny record", Some(RecordViolation::LastDeployed));
    check_passes(owned(ReleaseStatus::Uninstalling));
    check_passes(RecordCase {
        old: Some(changed(|it| it.status = ReleaseStatus::Failed)),
        ..owned(ReleaseStatus::Failed)
    });
    check_passes(RecordCase { operation: Operation::Create, old: None, ..owned(ReleaseStatus::Failed) });
}

#[test]
fn the_mode_says_what_becomes_of_a_falsified_record() {
    for (mode, word) in [
        (EditsMode::Allow, "Allow"),
        (EditsMode::Record, "Record"),
        (EditsMode::Warn, "Warn"),
        (EditsMode::Deny, "Deny"),
    ] {
        let case = RecordCase { mode, new: Some(stored("b: 2")), ..RecordCase::default() };
        check(case, &format!("{word} record"), Some(RecordViolation::Manifest));
    }
}

/// A policy for the namespace of the records, and one for the release's.
fn pair() -> PolicyResolver {
    let policies = [
        policy("here", "{releases: {namespaces: [flux-system]}, edits: Record}"),
        policy(
            "there",
            "{releases: {namespaces: [shop]}, edits: Deny, operators: [{kind: User, name: flux}],
              storage: [{records: flux-system, releases: [shop]}]}",
        ),
    ];
    let defaults =
        Policy::new(EditsMode::Warn, kubemoor_declare::model::DriftMode::Report, Duration::from_secs(60));
    PolicyResolver::of_policies(Policies::new(defaults, &Labels::new(), policies))
}

fn paired(
    actor: &str,
    operation: Operation,
    old: Option<Stored>,
    new: Option<Stored>,
) -> (Verdict, Option<RecordViolation>) {
    let object = ObjectId { namespace: Some("flux-system".into()), ..secret("sh.helm.release.v1.web.v1") };
    let actor = Actor { user: actor.to_owned(), ..Actor::default() };
    let edit = RecordEdit {
        operation,
        actor: &actor,
        object: &object,
        old: old.as_ref(),
        new: new.as_ref(),
        labelled: &["web".to_owned()],
        adds_owner: false,
        being_deleted: false,
    };
    judge(&edit, &Index::default(), &Rules { resolver: &pair(), own_account: None })
}

#[track_caller]
fn check_paired(
    actor: &str,
    old: Option<&str>,
    new: Option<&str>,
    wanted: &str,
    falsified: Option<RecordViolation>,
) {
    let record = |namespace: &str| changed(|record| record.namespace = namespace.to_owned());
    let operation = match (old, new) {
        (None, _) => Operation::Create,
        (Some(_), Some(_)) => Operation::Update,
        (Some(_), None) => Operation::Delete,
    };
    let (verdict, found) = paired(actor, operation, old.map(record), new.map(record));
    assert_eq!((verdict.outcome.as_str(), found), (wanted, falsified), "{actor}: {old:?} to {new:?}");
}

#[test]
fn record_in_another_namespace_follows_policies_of_its_trusted_release() {
    use RecordViolation::{Disagreement, Stranger};
    check_paired("flux", None, Some("shop"), "Allow", None);
    check_paired("flux", Some("shop"), Some("shop"), "Allow", None);
    check_paired("flux", Some("shop"), None, "Allow", None);
    check_paired("mallory", None, Some("shop"), "Deny", Some(Stranger));
    check_paired("mallory", Some("shop"), Some("shop"), "Deny", Some(Stranger));
    check_paired("mallory", Some("shop"), None, "Deny", Some(Stranger));
    // Nor by making it speak for another release, or another's for this one.
    check_paired("mallory", Some("shop"), Some("flux-system"), "Deny", Some(Stranger));
    check_paired("mallory", Some("flux-system"), Some("shop"), "Deny", Some(Stranger));
    check_paired("flux", Some("shop"), Some("flux-system"), "Deny", Some(Disagreement));
    // What is no trusted record of that release is none of its operators' business.
    check_paired("mallory", None, Some("flux-system"), "Allow", None);
    check_paired("mallory", None, Some("billing"), "Allow", None);
    check_paired("mallory", Some("billing"), Some("flux-system"), "Record", Some(Disagreement));
}

#[test]
fn records_elsewhere_are_written_only_by_operators_whatever_their_names() {
    let resolver = pair();
    let rules = Rules { resolver: &resolver, own_account: None };
    let speaking_for = |namespace: &str| changed(|record| record.namespace = namespace.to_owned());
    let here = || assembled(SampleRecord::default(), None);
    let there = || Release { storage: "flux-system".to_owned(), ..here() };
    let mut contested = index(Some(there()));
    contested.set(here());
    let (unknown, known) = (index(None), index(Some(there())));
    let (other, web) = ("sh.helm.release.v1.other.v1", "sh.helm.release.v1.web.v9");
    for (object, labels, record, index, is_strangers) in [
        // Helm asks for the labels, and never for the namespace in the content.
        (other, "web", speaking_for("shop"), &unknown, true),
        (other, "web", speaking_for("flux-system"), &unknown, true),
        (other, "web", speaking_for("billing"), &unknown, true),
        (other, "web", undecodable(), &unknown, true),
        (other, "other web", speaking_for("flux-system"), &unknown, true),
        ("backup", "web", speaking_for("flux-system"), &unknown, true),
        (other, "other", speaking_for("shop"), &unknown, true),
        // Another release than those of the pair.
        (other, "other", speaking_for("flux-system"), &known, false),
        (other, "other", speaking_for("billing"), &known, false),
        // By its name a record counts for the release whose records lie there, in one place or in two.
        (web, "web", speaking_for("flux-system"), &known, true),
        (web, "web", speaking_for("billing"), &known, true),
        (web, "", undecodable(), &known, true),
        (web, "web", speaking_for("flux-system"), &contested, true),
        (web, "web", speaking_for("flux-system"), &unknown, false),
    ] {
        let object = ObjectId { namespace: Some("flux-system".into()), ..secret(object) };
        let labelled: Vec<_> = labels.split_whitespace().map(str::to_owned).collect();
        for (user, falsified) in
            [("flux", None), ("mallory", is_strangers.then_some(RecordViolation::Stranger))]
        {
            let actor = Actor { user: user.to_owned(), ..Actor::default() };
            let edit = RecordEdit {
                operation: Operation::Create,
                actor: &actor,
                object: &object,
                old: None,
                new: Some(&record),
                labelled: &labelled,
                adds_owner: false,
                being_deleted: false,
            };
            let (_, found) = judge(&edit, index, &rules);
            let namespace = record.payload.as_ref().ok().map(|record| &record.namespace);
            assert_eq!(found, falsified, "{user} {object} {labels:?} {namespace:?}");
            // Nor by a review that nobody could read in time.
            let unread = judge_unread(&RecordEdit { new: None, ..edit }, index, &rules);
            let hangs_on_content = labels == "other";
            let wanted = falsified.filter(|_| !hangs_on_content);
            assert_eq!(unread.and_then(|(_, found)| found), wanted, "{user} {object} {labels:?}, unread");
        }
    }
}

#[test]
fn what_helm_reads_by_name_or_by_label_is_written_only_by_operators() {
    let policies = vec![policy(
        "narrow",
        "{releases: {names: [web]}, edits: Deny, operators: [{kind: User, name: ci}]}",
    )];
    let defaults =
        Policy::new(EditsMode::Deny, kubemoor_declare::model::DriftMode::Report, Duration::from_secs(60));
    let resolver = PolicyResolver::of_policies(Policies::new(defaults, &Labels::new(), policies));
    let rules = Rules { resolver: &resolver, own_account: None };
    let unlabelled = || Stored { owner: None, name: None, version: None, status: None, ..stored("a: 1") };
    let check = |object: &str, labelled: &[&str], sides: [Option<Stored>; 2], is_strangers: bool| {
        let operation = match &sides {
            [None, _] => Operation::Create,
            [_, None] => Operation::Delete,
            _ => Operation::Update,
        };
        let labelled: Vec<_> = labelled.iter().map(|&name| name.to_owned()).collect();
        let [old, new] = &sides;
        for (user, falsified) in
            [("ci", None), ("mallory", is_strangers.then_some(RecordViolation::Stranger))]
        {
            let actor = Actor { user: user.to_owned(), ..Actor::default() };
            let edit = RecordEdit {
                operation,
                actor: &actor,
                object: &secret(object),
                old: old.as_ref(),
                new: new.as_ref(),
                labelled: &labelled,
                adds_owner: false,
                being_deleted: false,
            };
            let (_, found) = judge(&edit, &Index::default(), &rules);
            assert_eq!(found, falsified, "{user} {operation:?} {object} {labelled:?}");
        }
    };
    // Helm asks for the next record by its name, and finds it whatever its labels say.
    check("sh.helm.release.v1.web.v2", &[], [Some(unlabelled()), Some(unlabelled())], true);
    // It asks for the records of a release by their labels, and finds them whatever their names are.
    for object in ["backup", "sh.helm.release.v1.api.v7"] {
        check(object, &["web"], [Some(unlabelled()), Some(unlabelled())], true);
        check(object, &["api", "web"], [Some(unlabelled()), Some(unlabelled())], true);
        check(object, &["api"], [Some(unlabelled()), Some(unlabelled())], false);
    }
    check("backup", &["web"], [None, Some(stored("a: 1"))], true);
    // Who may write the release's records may remove it, whatever it says.
    check("backup", &["web"], [Some(changed(|record| record.revision = 99)), None], true);
}

#[test]
fn unreadable_record_is_judged_only_by_its_writer() {
    let policies = vec![policy(
        "narrow",
        "{releases: {names: [web]}, edits: Deny, operators: [{kind: User, name: flux}]}",
    )];
    let defaults =
        Policy::new(EditsMode::Deny, kubemoor_declare::model::DriftMode::Report, Duration::from_secs(60));
    let resolver = PolicyResolver::of_policies(Policies::new(defaults, &Labels::new(), policies));
    let check =
        |user: &str, record: &str, operation: Operation, wanted: Option<(&str, Option<RecordViolation>)>| {
            let object = secret(record);
            let actor = Actor { user: user.to_owned(), ..Actor::default() };
            let edit = RecordEdit {
                operation,
                actor: &actor,
                object: &object,
                old: None,
                new: None,
                labelled: &[],
                adds_owner: false,
                being_deleted: false,
            };
            let told =
                judge_unread(&edit, &Index::default(), &Rules { resolver: &resolver, own_account: None });
            let told = told.map(|(verdict, falsified)| (verdict.outcome.as_str(), falsified));
            assert_eq!(told, wanted, "{user} {operation:?} {record}");
        };
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    for operation in [Operation::Create, Operation::Update, Operation::Delete] {
        check("flux", "sh.helm.release.v1.web.v1", operation, None);
        check(
            "mallory",
            "sh.helm.release.v1.web.v1",
            operation,
            Some(("Deny", Some(RecordViolation::Stranger))),
        );
        check("mallory", "sh.helm.release.v1.api.v1", operation, None);
    }
    check(collector, "sh.helm.release.v1.web.v1", Operation::Delete, Some(("Allow", None)));
}
