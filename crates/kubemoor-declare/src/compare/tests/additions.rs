use serde_json::json;

use super::super::*;
use crate::catalog::Catalog;
use crate::declare::declare;
use crate::model::Gvk;

/// All that is below one of these paths.
struct Below(Vec<Vec<Segment>>);

impl AdditionScope for Below {
    fn step(&self, segment: &Segment) -> Option<Self> {
        let below = |steps: &Vec<Segment>| match steps.split_first() {
            None => Some(Vec::new()),
            Some((step, rest)) => (step == segment).then(|| rest.to_vec()),
        };
        let rest: Vec<_> = self.0.iter().filter_map(below).collect();
        (!rest.is_empty()).then_some(Self(rest))
    }

    fn is_inside(&self) -> bool {
        self.0.iter().any(Vec::is_empty)
    }
}

fn deployment(pod: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"template": {"spec": pod}},
    })
}

#[track_caller]
fn find(manifest: &Value, sealed: &[&str], old: Option<&Value>, new: &Value, wanted: &[&str]) {
    let text = |name: &str| manifest[name].as_str().unwrap();
    let gvk = Gvk::from_api_version(text("apiVersion"), text("kind"));
    let fields = declare(manifest, Catalog::with_core().schema(&gvk).as_deref());
    let below = sealed.iter().map(|path| path.parse::<Path>().unwrap().0.to_vec()).collect();
    let found: Vec<String> =
        fields.additions(&Below(below), old, new).into_iter().map(|it| it.path.to_string()).collect();
    assert_eq!(found, wanted, "{manifest} {old:?} -> {new}");
}

const POD: &str = "/spec/template/spec";

/// Which additions to the pod template of a Deployment count, of an edit and of a live object.
#[track_caller]
fn check(sealed: &str, old: Value, new: Value, wanted: &[&str]) {
    let manifest =
        deployment(&json!({"containers": [{"name": "app", "image": "a", "env": [{"name": "A"}]}]}));
    let wanted: Vec<String> = wanted.iter().map(|path| format!("{POD}{path}")).collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    find(&manifest, &[&format!("{POD}{sealed}")], Some(&deployment(&old)), &deployment(&new), &wanted);
}

fn app(more: Value) -> Value {
    let mut app = json!({"name": "app", "image": "a", "env": [{"name": "A"}]});
    app.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    app
}

#[test]
fn elements_entries_and_fields_are_additions() {
    let plain = || json!({"containers": [app(json!({}))]});
    let with = |more: Value| json!({"containers": [app(more)]});
    let beside = |image: &str| json!({"containers": [{"name": "evil", "image": image}, app(json!({}))]});
    check("/containers", plain(), beside("e:1"), &["/containers/[name=evil]"]);
    check("", plain(), beside("e:1"), &["/containers/[name=evil]"]);
    check("/initContainers", plain(), beside("e:1"), &[]);
    check("/containers", beside("e:1"), beside("e:2"), &["/containers/[name=evil]/image"]);
    check("/containers", beside("e:1"), beside("e:1"), &[]);
    check("/containers", beside("e:1"), plain(), &[]);
    let variable = with(json!({"env": [{"name": "A"}, {"name": "B", "value": "1"}]}));
    check("/containers", plain(), variable, &["/containers/[name=app]/env/[name=B]"]);
    let field = |name: &str| format!("/containers/[name=app]/{name}");
    check("/containers", plain(), with(json!({"command": ["sh"]})), &[&field("command")]);
    check("/containers/[name=app]/args", plain(), with(json!({"command": ["sh"]})), &[]);
    check("/containers", with(json!({"command": ["sh", "-c"]})), with(json!({"command": ["sh"]})), &[]);
    let swapped = (with(json!({"command": ["a", "b"]})), with(json!({"command": ["b"]})));
    check("/containers", swapped.0, swapped.1, &[]);
    let other = (with(json!({"command": ["a"]})), with(json!({"command": ["b"]})));
    check("/containers", other.0, other.1, &[&field("command")]);
    let limits = |limit: &str| with(json!({"resources": {"limits": {"cpu": limit}}}));
    check("/containers", with(json!({"resources": {}})), limits("1"), &[&field("resources/limits/cpu")]);
    check("/containers", limits("1"), limits("1000m"), &[]);
    check("/containers", limits("1"), limits("2"), &[&field("resources/limits/cpu")]);
    // What is declared is judged as such.
    check(
        "/containers",
        plain(),
        with(json!({"image": "b", "env": [{"name": "A", "value": "x"}]})),
        &[&field("env/[name=A]/value")],
    );
    let volume = |more: Value| json!({"volumes": more, "containers": [app(json!({}))]});
    check("/volumes", plain(), volume(json!([{"name": "v", "emptyDir": {}}])), &["/volumes/[name=v]"]);
    check("/hostNetwork", plain(), json!({"hostNetwork": true}), &["/hostNetwork"]);
}

#[test]
fn defaults_are_no_additions() {
    let plain = || json!({"containers": [app(json!({}))]});
    let filled = json!({
        "containers": [app(json!({
            "imagePullPolicy": "IfNotPresent", "resources": {}, "terminationMessagePolicy": "File",
            "terminationMessagePath": "/dev/termination-log",
        }))],
        "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
        "securityContext": {}, "terminationGracePeriodSeconds": 30,
    });
    check("", plain(), filled, &[]);
    check("", plain(), json!({"terminationGracePeriodSeconds": 0}), &["/terminationGracePeriodSeconds"]);
    check("", plain(), json!({"dnsPolicy": "None"}), &["/dnsPolicy"]);
    let strategy = |strategy: Value| {
        let mut object = deployment(&plain());
        object["spec"]["strategy"] = strategy;
        object
    };
    let rolling =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
    let manifest = deployment(&plain());
    find(&manifest, &["/spec"], Some(&manifest), &strategy(rolling), &[]);
    find(&manifest, &["/spec"], Some(&manifest), &strategy(json!({"type": "Recreate"})), &["/spec/strategy"]);
}

#[test]
fn additions_without_schema_follow_server_side_apply_merge_rules() {
    let thing = |spec: Value| json!({"apiVersion": "e.org/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec});
    let manifest = thing(json!({"a": 1, "list": [1], "map": {"x": 1}}));
    let added = thing(json!({"a": 1, "b": 0, "list": [1, 2], "map": {"x": 1, "y": {}}}));
    find(&manifest, &["/spec"], None, &added, &["/spec/b", "/spec/map/y"]);
    let config = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    let added = config(json!({"k": "v", "new": ""}));
    find(&config(json!({"k": "v"})), &["/data"], None, &added, &["/data/new"]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}});
    let mut scheduled = pod.clone();
    scheduled["spec"]["nodeName"] = json!("n");
    scheduled["spec"]["containers"] = json!([{"name": "x"}]);
    find(&pod, &["/spec"], Some(&pod), &scheduled, &[]);
}

#[test]
fn declared_empty_value_holds_additions() {
    let pod = |more: Value| deployment(&json!({"containers": [app(more)], "securityContext": {}}));
    let manifest = pod(json!({"env": [], "resources": {}}));
    let mut new = pod(json!({"env": [{"name": "B"}], "resources": {"limits": {"cpu": "1"}}}));
    new["spec"]["template"]["spec"]["securityContext"] = json!({"runAsUser": 0});
    new["metadata"]["labels"] = json!({"a": "b"});
    let at = |path: &str| format!("{POD}{path}");
    let wanted = [
        at("/containers/[name=app]/env/[name=B]"),
        at("/containers/[name=app]/resources/limits/cpu"),
        at("/securityContext/runAsUser"),
    ];
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    find(&manifest, &["/spec"], Some(&manifest), &new, &wanted);
    find(&manifest, &["/spec"], None, &new, &wanted);
    let config = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    find(&config(json!({})), &["/data"], None, &config(json!({"k": "v"})), &["/data/k"]);
    let thing = |spec: Value| json!({"apiVersion": "e.org/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec});
    find(&thing(json!({"a": {}})), &["/spec"], None, &thing(json!({"a": {"b": 1}})), &["/spec/a/b"]);
    // What is declared as one value is compared as one.
    let atomic = thing(json!({"a": []}));
    find(&atomic, &["/spec"], None, &thing(json!({"a": [1]})), &[]);
    find(&thing(json!({"a": null})), &["/spec"], None, &thing(json!({"a": {"b": 1}})), &[]);
}

#[test]
fn retention_of_claims_is_filled_in() {
    let set = |more: Value| {
        let mut spec = json!({"serviceName": "web"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}, "spec": spec})
    };
    let policy = |deleted: &str, scaled: &str| {
        set(json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": deleted, "whenScaled": scaled}}))
    };
    let manifest = set(json!({}));
    find(&manifest, &["/spec"], None, &policy("Retain", "Retain"), &[]);
    find(&manifest, &["/spec"], Some(&policy("Delete", "Delete")), &policy("Retain", "Retain"), &[]);
    let at = "/spec/persistentVolumeClaimRetentionPolicy";
    find(&manifest, &["/spec"], Some(&manifest), &policy("Delete", "Retain"), &[at]);
}

#[test]
fn only_unset_fields_are_chosen_by_the_server() {
    let service = |port: Value| {
        let spec = json!({"ports": [port]});
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec})
    };
    let manifest = service(json!({"port": 80, "protocol": "TCP"}));
    let live = |target: i64, node: i64| {
        service(json!({"port": 80, "protocol": "TCP", "targetPort": target, "nodePort": node}))
    };
    let at = "/spec/ports/[port=80,protocol=TCP]";
    find(&manifest, &["/spec"], Some(&manifest), &live(80, 30001), &[]);
    find(&manifest, &["/spec"], None, &live(80, 30001), &[]);
    let both = [format!("{at}/nodePort"), format!("{at}/targetPort")];
    let both: Vec<&str> = both.iter().map(String::as_str).collect();
    find(&manifest, &["/spec"], Some(&live(80, 30001)), &live(81, 30002), &both);
    let plain = || json!({"containers": [app(json!({}))]});
    let with = |more: Value| {
        let mut pod = plain();
        pod.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        pod
    };
    check("", plain(), with(json!({"nodeName": "n"})), &["/nodeName"]);
    let account = |name: &str| with(json!({"serviceAccount": name}));
    check("", account("a"), account("b"), &[]);
}

#[test]
fn default_values_count_as_additions_where_server_defaults_nothing() {
    let probe = json!({"livenessProbe": {
        "httpGet": {"path": "/", "port": 443, "scheme": "HTTP"}, "periodSeconds": 10, "failureThreshold": 3,
        "successThreshold": 1, "timeoutSeconds": 1,
    }});
    let plain = || json!({"containers": [app(json!({}))]});
    let at = "/containers/[name=app]/livenessProbe";
    check("/containers", plain(), json!({"containers": [app(probe)]}), &[at]);
    let starts = |more: Value| {
        let mut pod = plain();
        pod["initContainers"] = json!([more]);
        deployment(&pod)
    };
    // In a pod the policy is a default, and makes a sidecar of a container that has to end.
    let manifest = starts(json!({"name": "wait"}));
    let always = starts(json!({"name": "wait", "restartPolicy": "Always"}));
    let found = format!("{POD}/initContainers/[name=wait]/restartPolicy");
    find(&manifest, &[POD], Some(&manifest), &always, &[&found]);
    find(&manifest, &[POD], None, &always, &[&found]);
    let mut rolling = deployment(&plain());
    rolling["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
    rolling["spec"]["strategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
    find(&deployment(&plain()), &["/spec"], None, &rolling, &[]);
}

#[test]
fn defaulted_text_is_an_addition_only_to_an_existing_object() {
    let ingress = |more: Value| json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "web"}, "spec": more});
    let (plain, classed) = (ingress(json!({})), ingress(json!({"ingressClassName": "mine"})));
    find(&plain, &["/spec"], Some(&plain), &classed, &["/spec/ingressClassName"]);
    find(&plain, &["/spec"], None, &classed, &[]);
}
