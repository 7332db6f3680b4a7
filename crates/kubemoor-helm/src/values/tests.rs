//! What small charts tell of their fields.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::record::PackedRecord;

const RENDERED: &str = "---
# Source: web/templates/web.yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  template:
    spec:
      nodeSelector:
        example.org/pool: edge
      containers:
        - name: side
          image: \"registry.example/side:1\"
        - name: app
          image: \"registry.example/app:1.20\"
          args:
            - --level=info
            - --port=8080
          resources:
            limits:
              memory: 64Mi
";

const TEMPLATE: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
spec:
  {{- if not .Values.autoscaling }}
  replicas: {{ .Values.replicaCount | default 1 }}
  {{- end }}
  template:
    spec:
      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: side
          image: "{{ .Values.side.repository }}:{{ .Values.side.tag }}"
        - name: {{ .Chart.Name }}
          image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
          args:
            - --level={{ .Values.level }}
            - --port={{ .Values.port }}
          resources: {{- toYaml .Values.resources | nindent 12 }}
"#;

fn values() -> Value {
    json!({
        "replicaCount": 2, "other": 2, "level": "info", "port": 8080, "nodeSelector": {"example.org/pool": "edge"},
        "side": {"repository": "registry.example/side", "tag": "1"},
        "image": {"repository": "registry.example/app", "tag": ""},
        "resources": {"limits": {"memory": "64Mi"}},
    })
}

/// A revision with these values, of which the template is kept or not.
fn source(revision: u64, values: &Value, manifest: &str, template: Option<&str>) -> ChartSource {
    let templates =
        template.map(|text| json!([{"name": "templates/web.yaml", "data": BASE64_STANDARD.encode(text)}]));
    let release = json!({
        "name": "web", "namespace": "shop", "version": revision, "manifest": manifest, "config": {},
        "chart": {
            "metadata": {"name": "app", "version": "1.2.3", "appVersion": "1.20"},
            "values": values, "templates": templates,
        },
    });
    PackedRecord::new(BASE64_STANDARD.encode(release.to_string()), false).source().unwrap()
}

fn ask(sources: &[ChartSource], path: &str, new: Option<Value>) -> Vec<Candidate> {
    let object = ObjectId::namespaced("apps", "Deployment", "shop", "web");
    let path = path.parse().unwrap();
    candidates(sources, ValueQuestion { object: &object, path: &path, place: None, new: new.as_ref() })
}

#[track_caller]
fn check(path: &str, new: Option<Value>, expected: &str, set: Option<(&str, &str)>) {
    let found = ask(&[source(1, &values(), RENDERED, Some(TEMPLATE))], path, new);
    let first = found.first().map_or(("", None), |first| (&*first.value, first.set.clone()));
    assert_eq!(
        first,
        (
            expected,
            set.map(|(flag, set)| (if flag == "--set" { "--set" } else { "--set-string" }, set.to_owned()))
        ),
        "{path}: {found:?}"
    );
}

#[test]
fn template_line_yields_the_chart_value_and_its_set_flag() {
    let image = "/spec/template/spec/containers/[name=app]/image";
    let pool = "/spec/template/spec/nodeSelector/example.org~1pool";
    let memory = "/spec/template/spec/containers/[name=app]/resources/limits/memory";
    check("/spec/replicas", Some(json!(5)), "replicaCount", Some(("--set", "replicaCount=5")));
    check("/spec/replicas", None, "replicaCount", None);
    check(
        image,
        Some(json!("registry.example/app:1.21")),
        "image.tag",
        Some(("--set-string", "image.tag=1.21")),
    );
    check(
        image,
        Some(json!("mirror.example/app:1.20")),
        "image.repository",
        Some(("--set", "image.repository=mirror.example/app")),
    );
    check(
        image,
        Some(json!("mirror.example/app:2")),
        "image.repository",
        Some(("--set", "image.repository=mirror.example/app")),
    );
    check(
        "/spec/template/spec/containers/[name=side]/image",
        Some(json!("registry.example/side:2")),
        "side.tag",
        Some(("--set-string", "side.tag=2")),
    );
    check(
        memory,
        Some(json!("1Gi")),
        "resources.limits.memory",
        Some(("--set", "resources.limits.memory=1Gi")),
    );
    check(
        pool,
        Some(json!("core")),
        r"nodeSelector.example\.org/pool",
        Some(("--set", r"nodeSelector.example\.org/pool=core")),
    );
    check(
        "/spec/template/spec/containers/[name=app]/args/0",
        Some(json!("--level=debug")),
        "level",
        Some(("--set", "level=debug")),
    );
    // What `--set` cannot carry is left out, and the name stays.
    for text in ["a,b", "a{b", "x\\y", "a\nb", "\"q\"", "", " a"] {
        check(memory, Some(json!(text)), "resources.limits.memory", None);
    }
    check("/spec/template/spec/containers/[name=app]/name", None, "", None);
    check("/metadata/name", None, "", None);
    check("/spec/nothing", None, "", None);
    check("/spec/template/spec/containers/[name=none]/image", None, "", None);
}

/// The values of an image that a template prints, and the flags that make it another one.
#[track_caller]
fn image(template: &str, new: Option<&str>, expected: &[(&str, Option<&str>)]) {
    let text = TEMPLATE.replace(
        r#""{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}""#,
        template,
    );
    let values = json!({"image": {"registry": "registry.example", "name": "app", "repository": "registry.example/app", "tag": "1.20"}});
    let object = ObjectId::namespaced("apps", "Deployment", "shop", "web");
    let path = "/spec/template/spec/containers/[name=app]/image".parse().unwrap();
    let new = new.map(Value::from);
    let question = ValueQuestion { object: &object, path: &path, place: None, new: new.as_ref() };
    let found = likeliest(candidates(&[source(1, &values, RENDERED, Some(&text))], question));
    let named: Vec<_> = found.iter().map(|it| (&*it.value, it.set.as_ref().map(|(_, set)| &**set))).collect();
    assert_eq!(named, expected, "{template} {new:?}: {found:?}");
}

#[test]
fn image_of_several_values_names_those_that_change() {
    let two = r#""{{ .Values.image.repository }}:{{ .Values.image.tag }}""#;
    image(two, Some("registry.example/app:2"), &[("image.tag", Some("image.tag=2"))]);
    let moved = |repository| ("image.repository", Some(repository));
    image(two, Some("mirror.example/app:1.20"), &[moved("image.repository=mirror.example/app")]);
    image(
        two,
        Some("mirror.example:5000/app:2"),
        &[moved("image.repository=mirror.example:5000/app"), ("image.tag", Some("image.tag=2"))],
    );
    // Nothing makes this one, or nothing is known of it.
    let both = [("image.repository", None), ("image.tag", None)];
    image(two, Some("mirror.example/app"), &both);
    image(two, None, &both);
    let three = r#""{{ .Values.image.registry }}/{{ .Values.image.name }}:{{ .Values.image.tag }}""#;
    image(
        three,
        Some("mirror.example/app:2"),
        &[("image.registry", Some("image.registry=mirror.example")), ("image.tag", Some("image.tag=2"))],
    );
    image(three, Some("registry.example/app:2"), &[("image.tag", Some("image.tag=2"))]);
    // A function puts the values together.
    let function = r#"{{ printf "%s:%s" .Values.image.repository .Values.image.tag | quote }}"#;
    image(
        function,
        Some("mirror.example/web:2"),
        &[moved("image.repository=mirror.example/web"), ("image.tag", Some("image.tag=2"))],
    );
}

#[test]
fn evidence_names_the_line_of_the_template() {
    let found = ask(&[source(1, &values(), RENDERED, Some(TEMPLATE))], "/spec/replicas", None);
    let line = ValueEvidence::Template { file: "templates/web.yaml".to_owned(), line: 7 };
    assert_eq!(found[0].evidence, [line, ValueEvidence::EqualValue, ValueEvidence::SimilarName]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn chart_value_is_found_by_joint_change_without_a_template() {
    let older = json!({"replicaCount": 1, "size": 2, "other": 7, "spare": 1});
    let newer = json!({"replicaCount": 2, "size": 2, "other": 7, "spare": 1});
    let before = RENDERED.replace("replicas: 2", "replicas: 1");
    let sources = [source(4, &newer, RENDERED, None), source(3, &older, &before, None)];
    let found = ask(&sources, "/spec/replicas", Some(json!(5)));
    assert_eq!(found[0].value, "replicaCount");
    assert!(found[0].evidence.contains(&ValueEvidence::ChangedTogether { from: 3, to: 4 }), "{found:?}");
    // An equal value alone says nothing.
    assert_eq!(ask(&sources[..1], "/spec/replicas", None), []);
}

#[test]
fn subchart_value_is_named_only_when_it_is_unambiguous() {
    let rendered = RENDERED.replace("# Source: web/templates", "# Source: web/charts/sessions/templates");
    let image = "/spec/template/spec/containers/[name=app]/image";
    let check = |values: &Value, path: &str, expected: &str| {
        let found = ask(&[source(1, values, &rendered, None)], path, None);
        let first = found.first().map_or("", |first| &*first.value);
        assert_eq!(first, expected, "{path} {values}: {found:?}");
    };
    let app = json!({"repository": "registry.example/app", "tag": "1.20"});
    let one = json!({"replicaCount": 2, "sessions": {"replicaCount": 2, "image": app}, "results": {"replicaCount": 2}});
    check(&one, "/spec/replicas", "sessions.replicaCount");
    check(&one, image, "sessions.image.tag");
    check(&json!({"global": {"replicas": 2}, "sessions": {}}), "/spec/replicas", "global.replicas");
    // Two of them, another value, a value of another part, and one that only looks like it.
    check(&json!({"global": {"replicas": 2}, "sessions": {"replicaCount": 2}}), "/spec/replicas", "");
    check(&json!({"sessions": {"replicaCount": 3}}), "/spec/replicas", "");
    check(&json!({"replicaCount": 2, "results": {"replicaCount": 2}}), "/spec/replicas", "");
    check(&json!({"sessions": {"size": 2}}), "/spec/replicas", "");
    check(
        &json!({"sessions": {"image": {"repository": "registry.example/other", "tag": "1.20"}}}),
        image,
        "",
    );
    let wanted = |new: &str| {
        let found = likeliest(ask(&[source(1, &one, &rendered, None)], image, Some(json!(new))));
        found.iter().map(|it| it.set.as_ref().unwrap().1.clone()).collect::<Vec<_>>()
    };
    let (repository, tag) = ("sessions.image.repository=mirror.example/app", "sessions.image.tag=2");
    assert_eq!(wanted("registry.example/app:2"), [tag]);
    assert_eq!(wanted("mirror.example/app:1.20"), [repository]);
    assert_eq!(wanted("mirror.example/app:2"), [repository, tag]);
}

#[test]
fn value_that_changed_without_the_field_is_not_its_own() {
    let before = json!({"replicaCount": 9});
    let sources = |values: &Value| {
        [
            source(2, &json!({"replicaCount": 2}), RENDERED, Some(TEMPLATE)),
            source(1, values, RENDERED, Some(TEMPLATE)),
        ]
    };
    assert_eq!(ask(&sources(&json!({"replicaCount": 2})), "/spec/replicas", None).len(), 1);
    let doubted = ask(&sources(&before), "/spec/replicas", None);
    assert!(doubted.iter().all(|candidate| candidate.score < 85), "{doubted:?}");
}

proptest! {
    /// Whatever a record holds gives an answer, in a time that its length bounds.
    #[test]
    fn any_template_and_manifest_give_an_answer(
        template in r#"([ a-z:\-"'{}|.$\n]|\{\{-? (if|end|range|with|toYaml) \.?(Values\.)?[a-z.]{0,5} ?-?\}\}){0,80}"#,
        manifest in r#"([ a-z:\-"'{}|\n]){0,60}"#,
    ) {
        let manifest = format!("{RENDERED}{manifest}");
        let sources = [source(2, &values(), &manifest, Some(&template)), source(1, &values(), RENDERED, Some(TEMPLATE))];
        for path in ["/spec/replicas", "/spec/template/spec/containers/[name=app]/image", "/spec"] {
            ask(&sources, path, Some(json!("x")));
            ask(&sources, path, None);
        }
    }
}
