//! What a replay makes of recorded edits is what would have become of them.

use super::*;
use crate::diff::JudgedFacts;
use crate::replay::{self, PastEdit, RecordedFacts, Recording, Replay, ReplayError, Replayed};
use kubemoor_policy::agreement::ObjectSettledValues;
use kubemoor_policy::signing::{Declaration, SigningKey};

/// The policies under which an edit is recorded that is then judged by those of its case.
const RECORDING: [&str; 3] = [
    "",
    "ignore: [{paths: ['*']}]",
    "seal: [{paths: [/spec/template/spec]}, {paths: [/metadata/annotations]}]",
];

/// The rule of a case, tried on what is recorded of it under other policies.
#[track_caller]
pub(super) fn check_replay(case: &JudgeCase<'_>) {
    let would_be = case.verdict();
    for recording in RECORDING {
        let Some(replayed) = replay(case, recording) else {
            let is_addition = would_be.grounds.iter().flat_map(|it| &it.fields).all(|field| field.added);
            assert!(
                would_be.outcome == EditOutcome::Allow || is_addition,
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
    if verdict.outcome == EditOutcome::Allow {
        "Allow".to_owned()
    } else {
        describe(verdict).replace('?', "")
    }
}

/// What a replay by the policies of `case` makes of its edit as it is recorded under another policy; none where
/// nothing is recorded.
fn replay(case: &JudgeCase<'_>, recording: &str) -> Option<Result<Replayed, ReplayError>> {
    let accepted = (!recording.is_empty()).then(|| policy("recording", recording));
    let resolver = book_of(EditsMode::Warn, accepted);
    let now = case.now.parse().unwrap();
    let facts = case.judged(&resolver).1?;
    let object = web();
    let kept =
        Recording { object: &object, scale: case.scale, manager: "kubectl-edit", resolver: &resolver, now };
    let text = replay::text(&JudgedFacts::Edit(facts), kept);
    assert!(text.len() <= replay::MOST, "{text}");
    let facts: RecordedFacts = serde_json::from_str(&text).unwrap();
    let accepted = (!case.policy.is_empty()).then(|| policy("shop", case.policy));
    let hour = std::time::Duration::from_secs(3600);
    let defaults = Policy::new(case.mode, kubemoor_declare::model::DriftMode::Report, hour);
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

fn describe_replay(replayed: Option<Result<Replayed, ReplayError>>) -> String {
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
        let case = JudgeCase {
            claims: vec![deployed(&manifest)],
            policy,
            user,
            new: Some(changed()),
            ..JudgeCase::default()
        };
        for recording in ["", "ignore: [{paths: ['*']}]", "exempt: [{kind: User, name: alice}]"] {
            assert_eq!(
                describe_replay(replay(&case, recording)),
                wanted,
                "{policy}, recorded under {recording:?}"
            );
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
    let case = |policy| JudgeCase {
        claims: vec![deployed(&declared)],
        new: with(&long),
        policy,
        ..JudgeCase::default()
    };
    assert_eq!(describe_replay(replay(&case(below), "")), "value");
    let whole = "ignore: [{paths: [/spec/template/spec/tolerations]}]";
    assert_eq!(describe_replay(replay(&case(whole), "")), "Allow");
    assert_eq!(describe_replay(replay(&case(""), "")), format!("Deny drift {tolerations}"));
    // What passes may have added something that a seal would have caught.
    let sealed = "ignore: [{paths: [/spec/replicas]}]\nseal: [{paths: [/spec/template/spec]}]";
    let scaling = JudgeCase { policy: sealed, new: scaled(5), ..JudgeCase::default() };
    assert_eq!(describe_replay(replay(&scaling, "")), "seal");
    let same = "ignore: [{paths: ['*']}]\nseal: [{paths: [/spec/template/spec]}]";
    assert_eq!(describe_replay(replay(&scaling, same)), "Allow");
    // Whether Helm wrote it only a dry run could have told.
    let pending = || second(ReleaseStatus::PendingUpgrade, MANIFEST, MANIFEST);
    let during = JudgeCase { claims: vec![pending()], new: scaled(5), ..JudgeCase::default() };
    assert_eq!(describe_replay(replay(&during, "")), "unsettled");
    let settled = live(&[]);
    let during = JudgeCase { evidence: DryRunEvidence::Canonical(&settled), ..during };
    assert_eq!(describe_replay(replay(&during, "")), "Deny drift /spec/replicas");
}

#[test]
fn seal_that_names_an_element_by_its_place_is_replayed() {
    let first = "seal: [{paths: [/spec/template/spec/containers/0]}]";
    let args = |image: &str| {
        let containers = json!([{"name": "app", "image": image, "args": ["x"]}]);
        Some(live(&[("/spec/template/spec/containers", containers)]))
    };
    let of_app = |field: &str| format!("/spec/template/spec/containers/[name=app]/{field}");
    let case = |image| JudgeCase { new: args(image), policy: first, ..JudgeCase::default() };
    // Only a dry run tells whether a webhook adds it in any case.
    assert_eq!(describe_replay(replay(&case("app:1"), first)), "unsettled");
    let declared = live(&[]);
    let settled = JudgeCase { evidence: DryRunEvidence::Canonical(&declared), ..case("app:1") };
    assert_eq!(describe_replay(replay(&settled, first)), format!("Deny drift {}", of_app("args")));
    assert_eq!(
        describe_replay(replay(&case("app:2"), first)),
        format!("Deny drift {} {}", of_app("image"), of_app("args"))
    );
    // Nobody looked there then.
    assert_eq!(describe_replay(replay(&case("app:2"), "")), format!("Deny drift {}", of_app("image")));
    let passes = "exempt: [{kind: User, name: alice}]\nseal: [{paths: [/spec/template/spec/containers/0]}]";
    assert_eq!(describe_replay(replay(&JudgeCase { policy: passes, ..case("app:2") }, "")), "seal");
}

#[test]
fn seal_added_later_does_not_matter_to_edits_that_cannot_add() {
    let sealed = "exempt: [{kind: User, name: alice}]\nseal: [{paths: [/spec]}]";
    let deletion =
        JudgeCase { operation: Operation::Delete, new: None, policy: sealed, ..JudgeCase::default() };
    assert_eq!(describe_replay(replay(&deletion, "")), "Record exempt");
    let by_controller = JudgeCase {
        user: "system:serviceaccount:kube-system:deployment-controller",
        new: scaled(5),
        policy: "ignore: [{paths: [/spec/replicas]}]\nseal: [{paths: [/spec]}]",
        ..JudgeCase::default()
    };
    assert_eq!(describe_replay(replay(&by_controller, "")), "Allow");
}

#[test]
fn values_settled_then_are_as_declared_under_all_policies() {
    let (release, object) = (release("shop", "web"), web());
    let claims = || vec![deployed(&MANIFEST.replace("image: \"app:1\"", "image: \"app:0\""))];
    let image = "/spec/template/spec/containers/[name=app]/image".parse().unwrap();
    let declared = claims().remove(0).objects[&object].latest.clone().unwrap();
    let key = SigningKey::new([7; 32]);
    let digest = declared.digest.as_ref().unwrap();
    let declaration = Declaration { release: &release, object: &object, digest, seal: None };
    let settled = ObjectSettledValues::mark(&key, &declaration, [(&image, Some(&json!("app:1")))]);
    let circumstances =
        || ObjectContext { settled: Some(Arc::new(settled.clone())), ..ObjectContext::default() };
    let before = live(&[("/spec/template/spec/containers", json!([{"name": "app", "image": "app:9"}]))]);
    let case = |new, policy| JudgeCase {
        claims: claims(),
        old: Some(before.clone()),
        new,
        circumstances: circumstances(),
        policy,
        ..JudgeCase::default()
    };
    check(case(Some(live(&[])), ""), "Allow as-declared");
    check(case(scaled(5), ""), "Deny drift /spec/replicas");
    check(case(scaled(5), "ignore: [{paths: [/spec/replicas]}]"), "Allow ignored");
    let ignoring = "ignore: [{paths: ['/spec/template/spec/containers/[name=app]/image']}]";
    check(case(scaled(5), ignoring), "Deny drift /spec/replicas");
    assert_eq!(describe_replay(replay(&case(scaled(5), ignoring), "")), "Deny drift /spec/replicas");
}

#[test]
fn manifest_that_opts_an_object_out_is_not_forgotten() {
    let out = MANIFEST.replace("{name: web}", "{name: web, annotations: {kubemoor.dev/guard: disabled}}");
    let failed = || vec![second(ReleaseStatus::Failed, MANIFEST, &out)];
    let edit = || JudgeCase { claims: failed(), new: scaled(5), ..JudgeCase::default() };
    check(edit(), "Allow opted-out");
    assert_eq!(describe_replay(replay(&edit(), "")), "unevaluated");
    check(JudgeCase { operation: Operation::Delete, new: None, ..edit() }, "Allow opted-out");
}

/// What a replay under `policy` makes of an edit of `web` that a guard with `resolver` has recorded.
fn replay_of(resolver: &PolicyResolver, policy_spec: &str, objects: &[&ObjectId]) -> Vec<String> {
    let case = JudgeCase { new: scaled(5), ..JudgeCase::default() };
    let (object, now) = (web(), case.now.parse().unwrap());
    let facts = JudgedFacts::Edit(case.judged(resolver).1.unwrap());
    let kept = Recording { object: &object, scale: false, manager: "", resolver, now };
    let facts = &serde_json::from_str(&replay::text(&facts, kept)).unwrap();
    let defaults = self::resolver(EditsMode::Deny).defaults().as_ref().clone();
    let mut replay = Replay::new(defaults, vec![policy("shop", policy_spec)]);
    let (operation, actor) = (Operation::Update, &Actor { user: "alice".to_owned(), ..Actor::default() });
    let past = |object| PastEdit { time: now, operation, object, actor, has_all_groups: true, facts };
    objects.iter().map(|object| describe_replay(Some(replay.verdict(past(object))))).collect()
}

#[test]
fn objects_with_equal_labels_keep_their_own_rules() {
    let ignoring = "ignore: [{target: {kind: StatefulSet}, paths: ['*']}]";
    let (web, other) = (web(), ObjectId { kind: "StatefulSet".into(), ..web() });
    let told = replay_of(&resolver(EditsMode::Warn), ignoring, &[&other, &web, &other]);
    assert_eq!(told, ["Allow", "Deny drift /spec/replicas", "Allow"]);
}

#[test]
fn namespace_that_lacks_its_name_as_a_label_is_not_given_one() {
    let selecting = |operator: &str| {
        let expression = format!("{{key: kubernetes.io/metadata.name, operator: {operator}}}");
        format!("releases: {{namespaceSelector: {{matchExpressions: [{expression}]}}}}\nedits: Record")
    };
    let (named, unnamed) = (resolver(EditsMode::Warn), resolver(EditsMode::Warn));
    unnamed.set_namespace("shop", Some(Labels::new()));
    for (resolver, operator, wanted) in [
        (&named, "Exists", "Record"),
        (&named, "DoesNotExist", "Deny"),
        (&unnamed, "Exists", "Deny"),
        (&unnamed, "DoesNotExist", "Record"),
    ] {
        let told = replay_of(resolver, &selecting(operator), &[&web()]);
        assert_eq!(told, [format!("{wanted} drift /spec/replicas")], "{operator}");
    }
}

#[test]
fn a_group_counts_only_where_all_groups_are_known() {
    let case =
        JudgeCase { policy: "exempt: [{kind: Group, name: ops}]", new: scaled(5), ..JudgeCase::default() };
    let resolver = book_of(EditsMode::Warn, None);
    let (object, now) = (web(), case.now.parse().unwrap());
    let facts = JudgedFacts::Edit(case.judged(&resolver).1.unwrap());
    let kept = Recording { object: &object, scale: false, manager: "", resolver: &resolver, now };
    let facts = serde_json::from_str(&replay::text(&facts, kept)).unwrap();
    let mut replay = Replay::new(resolver.defaults().as_ref().clone(), vec![policy("shop", case.policy)]);
    for (groups, has_all_groups, wanted) in [
        (vec!["ops".to_owned()], true, "Record exempt /spec/replicas"),
        (vec!["dev".to_owned()], true, "Warn drift /spec/replicas"),
        (vec!["dev".to_owned()], false, "groups"),
    ] {
        let actor = Actor { user: "alice".to_owned(), groups, ..Actor::default() };
        let (operation, object, facts) = (Operation::Update, &object, &facts);
        let past = PastEdit { time: now, operation, object, actor: &actor, has_all_groups, facts };
        assert_eq!(describe_replay(Some(replay.verdict(past))), wanted);
    }
}

#[test]
fn recording_keeps_no_secret_values_and_no_long_values() {
    let manifest = "apiVersion: v1\nkind: Secret\nmetadata: {name: web, annotations: {note: hunter2}}\ndata: {a: aHVudGVyMg==}";
    let release = deployed(manifest);
    let object = ObjectId { group: "".into(), kind: "Secret".into(), ..web() };
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
        owner: ObjectOwner::Release(super::release("shop", "web")),
        dry_run: false,
        field_manager: "",
        circumstances: &ObjectContext::default(),
    };
    let rules = Rules { resolver: &resolver, own_account: None };
    let now = "2026-05-01T12:05:00Z".parse().unwrap();
    let (_, facts) = judge(&edit, &[Arc::new(release)], &rules, DryRunEvidence::None, now);
    let kept = Recording { object: &object, scale: false, manager: "", resolver: &resolver, now };
    let text = replay::text(&JudgedFacts::Edit(facts.unwrap()), kept);
    assert!(text.contains("/data/a") && !text.contains("aHVudGVy") && !text.contains("hunter2"), "{text}");
}

#[test]
fn more_than_is_kept_is_said_to_be_cut() {
    let annotations: serde_json::Map<String, Value> =
        (0..60).map(|index| (format!("a{index}"), "x".repeat(200).into())).collect();
    let manifest =
        MANIFEST.replace("{name: web}", &json!({"name": "web", "annotations": annotations}).to_string());
    let case = JudgeCase { claims: vec![deployed(&manifest)], new: scaled(5), ..JudgeCase::default() };
    assert_eq!(describe_replay(replay(&case, "")), "cut");
}
