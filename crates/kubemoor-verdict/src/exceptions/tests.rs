use serde_json::json;

use crate::exceptions::*;
use crate::sample_policies::{policies, policy};
use crate::sample_releases::deployed;
use kubemoor_helm::release::Release;
use kubemoor_policy::resolver::Labels;
use kubemoor_policy::resource::DriftAllowance;

const NOON: &str = "2026-11-21T12:00:00Z";

/// What a test asks of the exceptions of the one object of a release.
fn with<T>(
    release: &Release,
    spec: &str,
    circumstances: &ObjectContext,
    now: &str,
    ask: impl FnOnce(&ObjectExceptions<'_>) -> T,
) -> T {
    let (object, declarations) = release.objects.iter().next().unwrap();
    let declared = declarations.latest.as_ref().unwrap();
    let policy = policies([policy("p", spec)]).resolve(&release.id, &Labels::new());
    let of = ObjectDeclaration { object, release: &release.id, declared };
    ask(&ObjectExceptions::new(of, &policy, circumstances, None, now.parse().unwrap()))
}

/// A release of a Deployment with two replicas and these annotations.
fn release(annotations: &str) -> Release {
    let manifest = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, annotations: {{{annotations}}}}}\n\
         spec: {{replicas: 2}}\n"
    );
    deployed(&manifest)
}

/// A field that the manifest does not declare, with this live value.
fn undeclared(path: &Path, live: serde_json::Value) -> FieldChange {
    let agreement = kubemoor_declare::equality::FieldAgreement::Differs;
    FieldChange { path: path.clone(), declared: None, old: None, new: Some(live), agreement }
}

fn allowance(paths: &[&str], until: &str) -> Arc<Allowance> {
    let resource: DriftAllowance = serde_json::from_value(json!({
        "apiVersion": "kubemoor.dev/v1alpha1", "kind": "DriftAllowance",
        "metadata": {"name": "a", "namespace": "shop", "creationTimestamp": "2026-11-21T11:00:00Z"},
        "spec": {
            "object": {"group": "apps", "kind": "Deployment", "name": "web"},
            "paths": paths, "until": until, "reason": "INC-1",
        },
    }))
    .unwrap();
    Arc::new(Allowance::compile(&resource).unwrap())
}

/// A rule for a field of an element excuses no removal of the element.
#[test]
fn rule_for_an_element_field_does_not_excuse_element_removal() {
    let manifest = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: \
                    {containers: [{name: side, image: a}, {name: app, image: b}]}}}\n";
    let release = deployed(manifest);
    let object =
        |containers: serde_json::Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let old = object(json!([{"name": "side", "image": "a"}, {"name": "app", "image": "b"}]));
    let check = |path: &str, new: serde_json::Value, excused: bool| {
        let fields = &release.objects.values().next().unwrap().latest.as_ref().unwrap().fields();
        let new = object(new);
        let spec = format!("{{ignore: [{{paths: ['{path}']}}]}}");
        for changes in [fields.changed(&old, &new), fields.drift(&new)] {
            let is = |change: &FieldChange| {
                with(&release, &spec, &ObjectContext::default(), NOON, |it| it.of_field(change).is_some())
            };
            let changes: Vec<_> = changes
                .iter()
                .filter(|it| it.path.to_string().starts_with("/spec/template/spec/containers"))
                .collect();
            assert!(!changes.is_empty() && changes.iter().all(|it| is(it) == excused), "{path} {new}");
        }
    };
    let image = "/spec/template/spec/containers/*/image";
    let side = json!({"name": "side", "image": "a"});
    check(image, json!([side, {"name": "app", "image": "c"}]), true);
    check(image, json!([side]), false);
    check(image, json!([side, {"name": "mine", "image": "b"}]), false);
    check("/spec/template/spec/containers/[name=app]", json!([side]), true);
    check("/spec/template/spec/containers", json!([side]), true);
}

#[test]
fn an_allowance_may_name_an_element_by_its_place() {
    let manifest = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: \
                    {containers: [{name: side, image: a}, {name: app, image: b}]}}}\n";
    let release = deployed(manifest);
    let paths = ["/spec/template/spec/containers/1/image"];
    let allowances = vec![allowance(&paths, "2026-11-21T13:00:00Z")];
    let circumstances = ObjectContext { allowances, ..ObjectContext::default() };
    let covers = |name: &str| {
        let path = format!("/spec/template/spec/containers/[name={name}]/image").parse().unwrap();
        with(&release, "{}", &circumstances, NOON, |it| it.mask(&json!({})).covers(&path))
    };
    assert!(covers("app") && !covers("side"));
}

#[test]
fn a_repair_leaves_what_may_differ_as_it_is() {
    let covers = |spec: &str, circumstances: &ObjectContext, replicas: i64, path: &str| {
        let live = json!({"spec": {"replicas": replicas}});
        with(&release(""), spec, circumstances, NOON, |it| it.mask(&live).covers(&path.parse().unwrap()))
    };
    let none = ObjectContext::default();
    assert!(!covers("{}", &none, 5, "/spec/replicas"));
    assert!(covers("{ignore: [{paths: [/spec/paused]}]}", &none, 5, "/spec/paused"));
    assert!(covers("{allow: [{name: a, paths: [/spec/paused]}]}", &none, 5, "/spec/paused"));
    let allowances = vec![allowance(&["/spec/paused"], "2026-11-21T13:00:00Z")];
    let allowed = ObjectContext { allowances, ..ObjectContext::default() };
    assert!(covers("{}", &allowed, 5, "/spec/paused") && !covers("{}", &allowed, 5, "/spec/replicas"));

    let scaled = ObjectContext { autoscalers: vec![scaler(3, 6, &[])], ..ObjectContext::default() };
    assert!(covers("{}", &scaled, 5, "/spec/replicas") && !covers("{}", &scaled, 5, "/spec/paused"));
    // What lies outside is the autoscaler's to bring in, unless it rests.
    assert!(covers("{}", &scaled, 7, "/spec/replicas") && covers("{}", &scaled, 1, "/spec/replicas"));
    assert!(!covers("{}", &scaled, 0, "/spec/replicas"));
    assert!(!covers("{autoscalers: Declared}", &scaled, 5, "/spec/replicas"));
    let departed =
        ObjectContext { departed: Some(DepartedAutoscaler::default()), ..ObjectContext::default() };
    assert!(covers("{}", &departed, 70, "/spec/replicas") && !covers("{}", &departed, 70, "/spec/paused"));
}

fn scaler(minimum: i32, maximum: i32, declared_by: &[(&str, &str)]) -> Autoscaler {
    Autoscaler { minimum, maximum, by_keda: false, declared_by: named(declared_by) }
}

fn named(releases: &[(&str, &str)]) -> Vec<ReleaseId> {
    let id =
        |(namespace, name): &(&str, &str)| ReleaseId { namespace: (*namespace).into(), name: (*name).into() };
    releases.iter().map(id).collect()
}

#[test]
fn each_autoscaler_accepted_by_the_policy_gives_its_own_range() {
    const HPA: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";
    let release = release("");
    let (object, declarations) = release.objects.iter().next().unwrap();
    assert_eq!(object.namespace.as_deref(), Some("shop"));
    let declared = declarations.latest.as_ref().unwrap();
    let path: Path = "/spec/replicas".parse().unwrap();
    let hpa = Actor { user: HPA.to_owned(), ..Actor::default() };
    let check = |spec: &str, autoscalers: &[Autoscaler], passing: &[i64]| {
        let policy = policies([policy("p", spec)]).resolve(&release.id, &Labels::new());
        let circumstances = ObjectContext { autoscalers: autoscalers.to_vec(), ..ObjectContext::default() };
        let exceptions = ObjectExceptions::new(
            ObjectDeclaration { object, release: &release.id, declared },
            &policy,
            &circumstances,
            Some(&hpa),
            NOON.parse().unwrap(),
        );
        let passes = |count: &i64| exceptions.of_field(&undeclared(&path, json!(count))).is_some();
        let found: Vec<i64> = (0..=12).filter(passes).collect();
        assert_eq!(found, passing, "{autoscalers:?}");
    };
    let of = |id: &ReleaseId| [(id.namespace.clone(), id.name.clone())];
    let [(namespace, name)] = of(&release.id);
    let own = [(namespace.as_str(), name.as_str())];
    let anybodys = [scaler(2, 3, &own), scaler(1, 9, &[])];
    check("{}", &anybodys, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    check("{}", &[scaler(1, 2, &[]), scaler(5, 6, &[])], &[1, 2, 5, 6]);
    // Somebody's own beside a declared one adds nothing.
    let only_declared = "{autoscalers: Declared}";
    check(only_declared, &anybodys, &[2, 3]);
    check(only_declared, &[scaler(1, 9, &[])], &[]);
    // Another release of the namespace may declare it, and none of another namespace.
    check(only_declared, &[scaler(4, 5, &[(namespace.as_str(), "scaling")])], &[4, 5]);
    check(only_declared, &[scaler(4, 5, &[("elsewhere", name.as_str())])], &[]);
}

#[test]
fn replicas_of_deleted_autoscaler_stay_only_without_an_accepted_successor() {
    let stays = |spec: &str, circumstances: ObjectContext, replicas: i64| {
        let live = json!({"spec": {"replicas": replicas}});
        let path = "/spec/replicas".parse().unwrap();
        with(&release(""), spec, &circumstances, NOON, |it| it.mask(&live).covers(&path))
    };
    let departed = |by: &[(&str, &str)], autoscalers: Vec<Autoscaler>| ObjectContext {
        departed: Some(DepartedAutoscaler { declared_by: named(by), range: None }),
        autoscalers,
        ..ObjectContext::default()
    };
    let only_declared = "{autoscalers: Declared}";
    assert!(stays("{}", departed(&[], vec![]), 0));
    assert!(!stays("{}", departed(&[], vec![scaler(1, 3, &[])]), 0));
    assert!(!stays(only_declared, departed(&[], vec![]), 7));
    assert!(stays(only_declared, departed(&[("shop", "any")], vec![]), 7));
    // One whose range did not hold the declared replicas scaled nothing that it could have left.
    let of_range = |range, spec: &str| {
        let departed = Some(DepartedAutoscaler { declared_by: Vec::new(), range: Some(range) });
        stays(spec, ObjectContext { departed, ..ObjectContext::default() }, 7)
    };
    assert!(of_range((1, 9), "{edits: Deny}") && of_range((9, 9), "{edits: Warn}"));
    assert!(!of_range((9, 9), "{edits: Deny}"));
    // Somebody's own is no successor.
    assert!(stays(only_declared, departed(&[("shop", "any")], vec![scaler(1, 3, &[])]), 7));
}

#[test]
fn deleted_autoscaler_excuses_its_leftover_replicas_but_no_user_change() {
    let release = release("");
    let (object, declarations) = release.objects.iter().next().unwrap();
    let declared = declarations.latest.as_ref().unwrap();
    let policy = policies([]).resolve(&release.id, &Labels::new());
    let departed =
        ObjectContext { departed: Some(DepartedAutoscaler::default()), ..ObjectContext::default() };
    let alice = Actor { user: "alice".to_owned(), ..Actor::default() };
    let path: Path = "/spec/replicas".parse().unwrap();
    for (actor, expected) in [(None, Some(VerdictReason::Autoscaled)), (Some(&alice), None)] {
        let of = ObjectDeclaration { object, release: &release.id, declared };
        let exceptions = ObjectExceptions::new(of, &policy, &departed, actor, NOON.parse().unwrap());
        assert_eq!(exceptions.of_field(&undeclared(&path, json!(9))), expected);
    }
}

#[test]
fn it_is_known_when_what_may_differ_changes_by_itself() {
    let next = |annotations: &str, spec: &str, circumstances: &ObjectContext, now: &str| {
        let next = with(&release(annotations), spec, circumstances, now, |it| it.next_change());
        next.map(|at| at.to_string())
    };
    let none = ObjectContext::default();
    let check = |found: Option<String>, expected: Option<&str>| assert_eq!(found.as_deref(), expected);
    check(next("", "{ignore: [{paths: [/spec]}]}", &none, NOON), None);
    let by_chart = "kubemoor.dev/allow: delete, kubemoor.dev/allow-until: '2026-11-21T13:00:00Z'";
    check(next(by_chart, "{}", &none, NOON), Some("2026-11-21T13:00:00Z"));
    check(next(by_chart, "{}", &none, "2026-11-21T13:00:00Z"), None);
    // A window that is still to open, and an allowance that ends before.
    let window = "{allow: [{name: a, paths: ['*'], \
                  schedule: {cron: '0 14 * * *', duration: 1h, timeZone: Etc/UTC}}]}";
    check(next("", window, &none, NOON), Some("2026-11-21T14:00:00Z"));
    let allowances = vec![allowance(&["*"], "2026-11-21T12:30:00Z")];
    let allowed = ObjectContext { allowances, ..ObjectContext::default() };
    check(next("", window, &allowed, NOON), Some("2026-11-21T12:30:00Z"));
    check(next("", window, &allowed, "2026-11-21T12:30:00Z"), Some("2026-11-21T14:00:00Z"));
}

#[test]
fn sources_lists_every_exception_in_force() {
    let allowances = vec![allowance(&["*"], "2026-11-21T12:30:00Z")];
    let circumstances =
        ObjectContext { allowances, autoscalers: vec![scaler(3, 6, &[])], ..ObjectContext::default() };
    let named = |spec: &str, now: &str| {
        with(&release(""), spec, &circumstances, now, |it| {
            let named = it.sources().into_iter().map(|source| match source {
                ExceptionSource::Ignored(_) => "ignored".to_owned(),
                ExceptionSource::Standing(standing) => standing.origin.to_string(),
                ExceptionSource::Allowance(allowance, _) => allowance.name.clone(),
                ExceptionSource::Autoscaler(autoscaler, path) => format!("{path} to {}", autoscaler.maximum),
            });
            named.collect::<Vec<_>>()
        })
    };
    let spec = "{ignore: [{paths: [/a]}], allow: [{name: some, paths: [/b]}]}";
    assert_eq!(named(spec, NOON), ["ignored", "allowance some of policy p", "a", "/spec/replicas to 6"]);
    assert_eq!(named("{autoscalers: Declared}", "2026-11-21T13:00:00Z"), Vec::<String>::new());
}
