//! The facts of an edit as a row of a database holds them, which whoever may write there chooses, judged by other
//! policies.
#![no_main]

use std::time::Duration;

use jiff::Timestamp;
use kubemoor_declare::model::{Actor, DriftMode, EditsMode, ObjectId, Operation};
use kubemoor_policy::Policy;
use kubemoor_policy::compile::read;
use kubemoor_verdict::replay::{PastEdit, RecordedFacts, Replay};
use libfuzzer_sys::fuzz_target;

const POLICY: &str = "
apiVersion: kubemoor.dev/v1alpha1
kind: DriftPolicy
metadata: {name: shop}
spec:
  edits: Deny
  exempt: {groups: [system:masters]}
  ignore:
  - target: {kind: Deployment}
    paths: [/spec/template/metadata/annotations/*, '/spec/template/spec/containers/[name=app]/image']
";

fuzz_target!(|text: &[u8]| {
    let Ok(facts) = serde_json::from_slice::<RecordedFacts>(text) else { return };
    let defaults = Policy::new(EditsMode::Warn, DriftMode::Report, Duration::from_secs(3600));
    let mut replay = Replay::new(defaults, read([("shop.yaml", POLICY)]).0);
    let object = ObjectId {
        group: "apps".into(),
        kind: "Deployment".into(),
        namespace: Some("ns".into()),
        name: "web".into(),
    };
    let actor = Actor { user: "alice".to_owned(), ..Actor::default() };
    for operation in [Operation::Create, Operation::Update, Operation::Delete] {
        let past = PastEdit {
            time: Timestamp::UNIX_EPOCH,
            operation,
            object: &object,
            actor: &actor,
            has_all_groups: true,
            facts: &facts,
        };
        let first = replay.verdict(past).map(|it| it.verdict.outcome);
        let second = replay.verdict(past).map(|it| it.verdict.outcome);
        assert_eq!(first, second, "what is remembered changes nothing");
    }
});
