//! Work grows no faster than what is compared, whatever shape it has. Counts values that are looked at, not time.

use serde_json::{Value, json};

use super::{fields, object};
use crate::equality::work;
use crate::excerpt::Excerpt;
use crate::fields::DeclaredFields;
use crate::path::Path;
use crate::prune::ObjectPruner;

const POD: &str = "apps/v1 Deployment";

/// What is declared, and an object before and after an edit, of about so many values.
struct Sample {
    kind: &'static str,
    declared: Value,
    old: Value,
    new: Value,
}

fn names(count: usize, prefix: &str) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}.io/{number:06}")).collect()
}

fn finalizers(names: &[String]) -> Value {
    json!({"metadata": {"finalizers": names}})
}

fn pod(containers: &[Value]) -> Value {
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}

fn containers(count: usize, image: &str) -> Vec<Value> {
    (0..count).map(|number| json!({"name": format!("c{number:06}"), "image": image})).collect()
}

fn reversed(mut items: Vec<Value>) -> Vec<Value> {
    items.reverse();
    items
}

/// Containers that all are of one name, or of names that are pairwise the same.
fn doubled(count: usize, image: &str) -> Vec<Value> {
    (0..count).map(|number| json!({"name": format!("c{:06}", number / 2), "image": image})).collect()
}

/// Containers with as many variables as there are containers.
fn thicket(count: usize, image: &str, back: bool) -> Vec<Value> {
    let side = count.isqrt();
    let variables = || (0..side).map(|number| json!({"name": format!("v{number:06}"), "value": image}));
    let variables: Vec<Value> = if back { variables().rev().collect() } else { variables().collect() };
    let mut all: Vec<Value> =
        (0..side).map(|number| json!({"env": variables, "name": format!("c{number:06}")})).collect();
    if back {
        all.reverse();
    }
    all
}

/// The same, that no keys tell apart, so that it is one value.
fn undistinguished(mut containers: Vec<Value>) -> Vec<Value> {
    containers.extend(containers.first().cloned());
    containers
}

fn annotations(count: usize, value: &str) -> Value {
    let map: serde_json::Map<String, Value> =
        names(count, "a").into_iter().map(|name| (name, Value::from(value))).collect();
    json!({"metadata": {"annotations": map}})
}

fn rules(count: usize, back: bool) -> Value {
    let rules = (0..count).map(|number| json!({"verbs": ["get"], "resources": [number.to_string()]}));
    let rules: Vec<Value> = if back { rules.rev().collect() } else { rules.collect() };
    json!({"rules": rules})
}

fn sample(kind: &'static str, declared: Value, old: Value, new: Value) -> Sample {
    Sample { kind, declared, old, new }
}

fn samples(count: usize) -> Vec<(&'static str, Sample)> {
    let of_maps = annotations(count, "a");
    let of_values = rules(count, false);
    let mut samples = samples_of_sets(count);
    samples.extend(samples_of_keyed_lists(count));
    samples.extend([
        ("annotations", sample("v1 ConfigMap", of_maps, annotations(count, "b"), annotations(count, "c"))),
        (
            "rules",
            sample(
                "rbac.authorization.k8s.io/v1 ClusterRole",
                of_values.clone(),
                of_values,
                rules(count, true),
            ),
        ),
    ]);
    samples
}

fn samples_of_sets(count: usize) -> Vec<(&'static str, Sample)> {
    let (x, y, z) = (names(count, "x"), names(count, "y"), names(count, "z"));
    let back: Vec<String> = x.iter().rev().cloned().collect();
    let one = vec![x[0].clone(); count];
    let alike: Vec<Value> =
        (0..count).map(|number| json!(format!("1.{}", "0".repeat(number % 20)))).collect();
    let spelled = json!({"metadata": {"finalizers": alike}});
    let sample = |declared, old, new| sample("v1 ConfigMap", declared, old, new);
    vec![
        ("a set against others", sample(finalizers(&x), finalizers(&y), finalizers(&z))),
        ("a set in reverse", sample(finalizers(&x), finalizers(&x), finalizers(&back))),
        ("a set of one element", sample(finalizers(&x), finalizers(&one), finalizers(&z))),
        ("a set of spelled numbers", sample(spelled, finalizers(&x), finalizers(&z))),
    ]
}

fn samples_of_keyed_lists(count: usize) -> Vec<(&'static str, Sample)> {
    let many = |image: &str| containers(count, image);
    let twice = |image: &str| pod(&doubled(count, image));
    let nested = |back: bool| pod(&thicket(count, "a", back));
    let one_value = pod(&undistinguished(thicket(count, "a", false)));
    let sample = |declared, old, new| sample(POD, declared, old, new);
    vec![
        ("keys in reverse", sample(pod(&many("a")), pod(&many("a")), pod(&reversed(many("b"))))),
        ("keys twice", sample(pod(&many("a")), twice("a"), twice("b"))),
        ("declared twice", sample(twice("a"), pod(&many("a")), pod(&reversed(many("a"))))),
        ("none there", sample(pod(&many("a")), pod(&[]), pod(&[]))),
        ("all gone", sample(pod(&many("a")), pod(&many("a")), pod(&[]))),
        ("lists in lists", sample(nested(false), nested(false), nested(true))),
        ("lists in lists of one value", sample(one_value, nested(false), nested(true))),
    ]
}

/// Does all that is ever done with a sample.
fn judge(fields: &DeclaredFields, old: &Value, new: &Value, texts: (&str, &str)) {
    let changes = fields.changed(old, new);
    let drift = fields.drift(new);
    let mut settler = fields.settler(old);
    changes.iter().chain(&drift).for_each(|change| {
        settler.settle(change);
    });
    for changes in [&changes, &drift] {
        let paths: Vec<&Path> = changes.iter().map(|change| &change.path).collect();
        let mut restored = new.clone();
        fields.restore(paths, old, &mut restored);
        drop(fields.changed(old, &restored));
    }
    let several = [fields; 40];
    for pruned in [ObjectPruner::new(&[fields]), ObjectPruner::new(&several)] {
        let (old, new) = (Excerpt::new(texts.0).unwrap(), Excerpt::new(texts.1).unwrap());
        assert!(pruned.pair(&old, &new).is_some() && pruned.read(&new).is_some());
    }
}

#[test]
fn work_grows_no_faster_than_what_is_compared() {
    let (few, many) = (1 << 11, 1 << 13);
    for ((what, small), (_, large)) in samples(few).into_iter().zip(samples(many)) {
        let [small, large] = [small, large].map(|Sample { kind, declared, old, new }| {
            let declared = fields(kind, &declared);
            let (old, new) = (object(kind, &old), object(kind, &new));
            let (before, after) = (old.to_string(), new.to_string());
            work::count(|| judge(&declared, &old, &new, (&before, &after)))
        });
        assert!(large < small * 6, "{what}: four times as much takes {large} instead of {small}");
        assert!(large < many as u64 * 500, "{what}: {large} for {many}");
    }
}
