use std::convert::Infallible;
use std::time::Duration;

use clap::Parser;
use http::{Request, Response};
use kube::client::Body;
use tokio::time::timeout;

use super::super::SupervisedTasks;
use super::*;
use kubemoor_declare::model::{DriftMode, EditsMode};
use kubemoor_declare::path::Path;
use kubemoor_guard::admin::Readiness;
use kubemoor_policy::Policy;
use kubemoor_policy::resolver::{Labels, PolicyResolver};
use prometheus_client::registry::Registry;

#[derive(Debug, clap::Parser)]
struct ServeLine {
    #[command(flatten)]
    settings: Settings,
}

#[test]
fn settings_name_what_is_enforced_and_no_password() {
    let flags = "--edits=Deny --drift=Repair --ledger=postgres://moor:hunter2@db/ledger?password=hunter2 \
        --ledger-age=2h --ledger-rows=9 --tls-cert=tls.crt --tls-key=tls.key --caller-token-file=token \
        --record-driver=configmap --read-only --register --webhook-url=https://guard:9443 --select-all \
        --namespace=shop --policies=policies --cluster-label=env=prod";
    let ServeLine { settings } = ServeLine::parse_from(["serve"].into_iter().chain(flags.split(' ')));
    let text = enforced(&settings).join("; ");
    for part in [
        "edits Deny; drift Repair; operation timeout 3600 s",
        "ledger postgres://db/ledger, 2 h, 9 rows",
        "certificate from files; callers by a token from a file; notifiers no",
        "record driver configmap; read-only; registers webhooks for all objects; namespaces shop",
        "policies policies; cluster labels env=prod",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn emergency_condition_is_not_met_before_the_state_is_known() {
    let readiness = Readiness::default();
    let defaults = Policy::new(EditsMode::Deny, DriftMode::Repair, Duration::from_secs(3600));
    let in_force = ActivePolicies::new(Arc::new(PolicyResolver::new(defaults)), Labels::new());
    let metrics = EmergencyMetrics::register(&mut Registry::default());
    let mut apply = apply_emergency(in_force, readiness.condition("emergency"), metrics);
    for (open, line) in [
        (None, "[-]emergency: not yet known"),
        (
            Some(true),
            "[!]emergency: open: no change is checked and nothing is repaired until `kubemoor emergency close`",
        ),
        (Some(false), "[+]emergency ok"),
    ] {
        apply(&open);
        assert_eq!(readiness.report().1.lines().next(), Some(line));
    }
}

#[tokio::test(start_paused = true)]
async fn told_name_does_not_end_the_process() {
    let silent = |_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>();
    let connection = ClusterConnection {
        client: kube::Client::new(tower::service_fn(silent), "default"),
        url: "https://127.0.0.1:6443".to_owned(),
        namespace: "default".to_owned(),
        claimed: None,
    };
    let (mut parts, stop) = (SupervisedTasks::default(), CancellationToken::new());
    let (naming, name) = oneshot::channel();
    parts.spawn("naming", send_cluster_name(naming, connection, Some("1-2-3".to_owned()), stop.clone()));
    assert_eq!(name.await.as_deref(), Ok("1-2-3"));
    // The paused clock moves only when no part has anything left to do.
    let ended = timeout(Duration::from_secs(3600), parts.wait_for_failure()).await;
    assert!(ended.is_err(), "{ended:?}");
    stop.cancel();
    parts.join_until_left(0).await;
}

#[test]
fn end_of_exception_is_announced_an_hour_or_a_quarter_before() {
    let begin: Timestamp = "2026-11-23T10:00:00Z".parse().unwrap();
    let at = |minutes: i64| begin + SignedDuration::from_mins(minutes);
    let opened = Notification::new(NotificationSubject::ExceptionOpened, begin);
    for (lasts, announced) in [(8 * 60, 7 * 60), (60, 45), (4, 3), (0, 0), (-4, -4)] {
        assert_eq!(announced_at(&opened, at(lasts)), at(announced), "{lasts}");
    }
}

fn web() -> ObjectId {
    ObjectId::namespaced("apps", "Deployment", "shop", "web")
}

fn scaling(uid: &str, range: (i32, i32), time: &str) -> Scaling {
    let written = ("kubectl".to_owned(), time.to_owned());
    let (kind, name) = ("HorizontalPodAutoscaler".to_owned(), "web".to_owned());
    Scaling { kind, name, uid: uid.to_owned(), range, declared_by: Vec::new(), written }
}

#[test]
fn only_coming_going_and_other_ranges_of_autoscalers_are_told() {
    let mut told = RecordedScalings::default();
    let mut note = |now: &[Scaling]| -> Vec<String> {
        let changes = told.diff_and_replace(&web(), now.to_vec());
        changes.iter().map(|(act, it, _)| format!("{} {}", act.as_str(), it.uid)).collect()
    };
    let one = scaling("a", (2, 9), "1");
    assert_eq!(note(std::slice::from_ref(&one)), ["StartAutoscaling a"]);
    // A resync, and labels of the autoscaler.
    assert_eq!(note(std::slice::from_ref(&one)), Vec::<String>::new());
    assert_eq!(note(&[scaling("a", (2, 9), "2")]), Vec::<String>::new());
    assert_eq!(note(&[scaling("a", (3, 9), "3")]), ["ChangeAutoscaling a"]);
    let [changed, other] = [scaling("a", (3, 9), "3"), scaling("b", (1, 2), "4")];
    assert_eq!(note(&[changed, other.clone()]), ["StartAutoscaling b"]);
    assert_eq!(note(&[other]), ["StopAutoscaling a"]);
    assert_eq!(note(&[scaling("c", (1, 2), "5")]), ["StopAutoscaling b", "StartAutoscaling c"]);
    assert_eq!(note(&[]), ["StopAutoscaling c"]);
    assert!(told.0.is_empty());
}

#[test]
fn row_about_one_state_is_the_same_after_restart() {
    let path: Path = "/spec/replicas".parse().unwrap();
    let row = |act, it: &Scaling, before| {
        scaling_row(ReviewedEdit::watched(web(), None), None, &path, (act, it.clone(), before))
    };
    let one = scaling("a", (2, 9), "1");
    let changed = row(Act::ChangeAutoscaling, &one, Some((1, 9)));
    let started = row(Act::StartAutoscaling, &one, None);
    assert_eq!(changed.same, started.same);
    assert_eq!(
        changed.detail,
        "HorizontalPodAutoscaler \"web\" sets /spec/replicas from 2 to 9 (before: from 1 to 9); by field manager \"kubectl\""
    );
    let again = row(Act::ChangeAutoscaling, &scaling("a", (2, 9), "2"), Some((3, 9)));
    assert_ne!(again.same, started.same);
    let stopped = row(Act::StopAutoscaling, &one, None);
    assert!(stopped.same != started.same && !stopped.detail.contains("kubectl"), "{stopped:?}");
}
