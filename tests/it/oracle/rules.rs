//! Random policies and exceptions, under which edits are recorded and then judged. Entry point: [`CasePolicies::draw`].

use std::fmt;

use kubemoor_policy::pattern::Pattern;
use serde_json::{Value, json};

use super::draw::Draw;
use crate::support::{Identity, RELEASE};

/// The names of the policies of every case.
pub(super) const NAMES: [&str; 3] = ["p0", "p1", "p2"];

/// Paths that rules name, beside those that edits touch.
const PATHS: &[&str] = &[
    "*",
    "/data",
    "/data/*",
    "/spec/replicas",
    "/spec/template/spec/containers/*/image",
    "/spec/template/spec/containers/0",
    "/spec/template/spec/containers/[name=app]/env",
    "/spec/template/spec/containers/*/resources/limits",
    "/spec/metrics",
    "/spec/scaleTargetRef",
    "/spec/ports/0",
    "/spec/ports/*/targetPort",
    "/spec/hard/*",
    "/metadata/labels",
    "/metadata/annotations/*",
];

/// Paths that rules seal.
const SEALS: &[&str] = &[
    "*",
    "/data",
    "/spec",
    "/spec/template/spec",
    "/spec/template/spec/containers",
    "/spec/template/spec/containers/0",
    "/spec/template/spec/containers/*",
    "/spec/ports",
    "/spec/ports/0",
    "/spec/hard",
    "/metadata/labels",
    "/metadata/annotations",
];

/// The policies of a case by their places in [`NAMES`], and the exceptions that are open all the time.
pub(super) struct CasePolicies {
    /// The policies under which edits are recorded: all of them warn.
    pub(super) recording: [Value; 3],
    /// The policies that judge these edits again.
    pub(super) strict: [Value; 3],
    /// Whether the latter seal the same places.
    pub(super) are_sealed_alike: bool,
    /// Paths of objects, by the place of the object.
    pub(super) exceptions: Vec<(usize, Vec<String>)>,
}

impl CasePolicies {
    /// Rules for some objects, of which edits touch these pointers.
    pub(super) fn draw(draw: &mut Draw, objects: usize, touched: &[String]) -> Self {
        let seals: Vec<Value> = match draw.below(3) {
            0 => Vec::new(),
            _ => rules(draw, |draw| (*draw.pick(SEALS)).to_owned()),
        };
        let recording = [spec(json!({"edits": "Warn", "seal": seals})), spec(json!({})), spec(json!({}))];
        let (are_sealed_alike, seals) = match draw.below(6) {
            0 => (seals.is_empty(), Vec::new()),
            1 => (false, rules(draw, |draw| (*draw.pick(SEALS)).to_owned())),
            _ => (true, seals),
        };
        let mode = if draw.chance(85) { "Deny" } else { *draw.pick(&["Record", "Warn"]) };
        let strict = [
            spec(json!({"edits": mode, "priority": 5, "seal": seals})),
            selected(draw, touched),
            selected(draw, touched),
        ];
        let exceptions = (0..draw.below(3)).map(|_| {
            let paths = (0..=draw.below(2)).map(|_| path(draw, touched)).collect();
            (draw.below(objects), paths)
        });
        Self { recording, strict, are_sealed_alike, exceptions: exceptions.collect() }
    }
}

impl fmt::Display for CasePolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { recording, strict, are_sealed_alike: _, exceptions } = self;
        let exceptions: Vec<Value> =
            exceptions.iter().map(|(place, paths)| json!({"object": place, "paths": paths})).collect();
        write!(f, "{}", json!({"recording": recording, "strict": strict, "exceptions": exceptions}))
    }
}

/// Policies that deny every edit but those of who prepares the objects.
pub(super) fn denying() -> [Value; 3] {
    [spec(json!({"edits": "Deny"})), spec(json!({})), spec(json!({}))]
}

/// A policy under which the objects can be set back.
fn spec(mut spec: Value) -> Value {
    let all = [json!({"kind": "User", "name": Identity::Admin.user()})];
    let own = spec["exempt"].as_array().cloned().unwrap_or_default();
    spec["exempt"] = all.into_iter().chain(own).collect();
    spec
}

/// A policy with rules for some objects of some releases.
fn selected(draw: &mut Draw, touched: &[String]) -> Value {
    let mut made = json!({"priority": draw.pick(&[0, 5, 9])});
    if draw.chance(15) {
        made["edits"] = json!(draw.pick(&["Deny", "Warn", "Record", "Allow"]));
    }
    match draw.below(6) {
        0 => made["releases"] = json!({"names": ["other"]}),
        1 => made["releases"] = json!({"names": [format!("{}*", &RELEASE[..2])]}),
        2 => {
            let operator = draw.pick(&["Exists", "DoesNotExist"]);
            let key = "kubernetes.io/metadata.name";
            let selector = json!({"matchExpressions": [{"key": key, "operator": operator}]});
            made["releases"] = json!({"namespaceSelector": selector});
        }
        _ => {}
    }
    if draw.chance(50) {
        made["ignore"] = json!(rules(draw, |draw| path(draw, touched)));
    }
    if draw.chance(35) {
        let mut allowed = rules(draw, |draw| path(draw, touched));
        for (number, rule) in allowed.iter_mut().enumerate() {
            rule["name"] = json!(format!("rule-{number}"));
            match draw.below(5) {
                0 => rule["schedule"] = json!({"cron": "* * * * *", "duration": "2m"}),
                // No run of the tests is so late on that day.
                1 => rule["schedule"] = json!({"cron": "0 0 29 2 1", "duration": "1m"}),
                2 => rule["subjects"] = json!([{"kind": "User", "name": Identity::Bob.user()}]),
                3 => rule["subjects"] = json!([{"kind": "Group", "name": "system:authenticated"}]),
                _ => {}
            }
        }
        made["allow"] = json!(allowed);
    }
    if draw.chance(5) {
        made["exempt"] = json!([{"kind": "User", "name": Identity::Alice.user()}]);
    }
    spec(made)
}

/// One or two rules with paths.
fn rules(draw: &mut Draw, path: impl Fn(&mut Draw) -> String) -> Vec<Value> {
    let rule = |draw: &mut Draw| {
        let paths: Vec<String> = (0..=draw.below(2)).map(|_| path(draw)).collect();
        let mut rule = json!({"paths": paths});
        match draw.below(6) {
            0 => rule["target"] = json!({"kind": draw.pick(&["Deployment", "ConfigMap", "Service"])}),
            1 => rule["target"] = json!({"group": draw.pick(&["apps", "autoscaling", ""])}),
            2 => {
                rule["target"] = json!({"labelSelector": draw.pick(&["tier", "!tier", "app in (web,alpha)"])})
            }
            3 => rule["target"] = json!({"name": draw.pick(&["configmaps-.*", ".*s-[0-9]+"])}),
            _ => {}
        }
        rule
    };
    (0..=draw.below(2)).map(|_| rule(draw)).collect()
}

/// A path: often at, above or beside a field that an edit touches.
fn path(draw: &mut Draw, touched: &[String]) -> String {
    if let Some(pointer) = draw.pick_if_any(touched).filter(|_| draw.chance(75)) {
        let mut tokens: Vec<&str> = pointer.split('/').skip(1).collect();
        tokens.truncate(tokens.len() - draw.below(tokens.len().min(3)));
        for token in &mut tokens {
            let is_place = token.parse::<usize>().is_ok();
            if draw.chance(if is_place { 60 } else { 5 }) {
                *token = "*";
            }
        }
        let path = format!("/{}", tokens.join("/"));
        if Pattern::parse(&path).is_ok() {
            return path;
        }
    }
    (*draw.pick(PATHS)).to_owned()
}
