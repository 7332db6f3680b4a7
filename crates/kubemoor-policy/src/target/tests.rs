use super::super::samples::declared;
use super::regexes::MAX_REGEX;
use super::*;

const JENKINS: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: jenkins
  namespace: ci
  labels: {app: jenkins, tier: build}
  annotations: {team: platform}
";

fn compile(yaml: &str) -> Result<Target, Vec<super::super::flaw::Flaw>> {
    let spec: TargetSpec = serde_saphyr::from_str(yaml).unwrap();
    let mut flaws = Flaws::default();
    let target = Target::compile(Some(&spec), "target", &mut Regexes::default(), &mut flaws);
    flaws.or(target)
}

#[test]
fn a_target_selects_as_in_flux() {
    let (object, jenkins) = declared(JENKINS);
    let check = |yaml: &str, expected: bool| {
        assert_eq!(compile(yaml).unwrap().selects(&object, &jenkins), expected, "{yaml}");
    };
    check("{}", true);
    check("{kind: StatefulSet}", true);
    check("{kind: State}", false);
    check("{kind: (StatefulSet|Deployment)}", true);
    check("{kind: '.*Set', name: 'jen.*'}", true);
    check("{name: jenk|nothing}", false);
    check("{kind: ''}", true);
    check("{group: apps, version: v1, namespace: ci}", true);
    check("{version: v1beta1}", false);
    check("{namespace: c.}", true);
    check("{group: batch}", false);
    check("{labelSelector: 'app=jenkins,tier in (build)'}", true);
    check("{labelSelector: 'app!=jenkins'}", false);
    check("{annotationSelector: team}", true);
    check("{annotationSelector: '!team'}", false);
}

#[test]
fn an_object_without_a_namespace_has_an_empty_one() {
    let (object, role) =
        declared("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}}");
    assert!(compile("{namespace: '.*'}").unwrap().selects(&object, &role));
    assert!(!compile("{namespace: '.+'}").unwrap().selects(&object, &role));
}

#[test]
fn a_target_that_cannot_be_read_is_named() {
    let check = |yaml: &str, field: &str, reason: FlawReason| {
        let flaws = compile(yaml).unwrap_err();
        assert_eq!((flaws[0].field.as_str(), flaws[0].reason), (field, reason), "{yaml}: {flaws:?}");
    };
    check("{kind: '('}", "target.kind", FlawReason::InvalidRegex);
    check("{name: ')|('}", "target.name", FlawReason::InvalidRegex);
    check("{name: 'a{1000}{1000}{1000}'}", "target.name", FlawReason::InvalidRegex);
    check("{name: '(?=a)'}", "target.name", FlawReason::InvalidRegex);
    check(&format!("{{group: '.{}'}}", "a".repeat(MAX_REGEX)), "target.group", FlawReason::InvalidRegex);
    check("{labelSelector: 'a in b'}", "target.labelSelector", FlawReason::InvalidSelector);
    check("{annotationSelector: '=b'}", "target.annotationSelector", FlawReason::InvalidSelector);
}

#[test]
fn a_regular_expression_that_backtracks_elsewhere_takes_linear_time() {
    let (mut object, declared) = declared(JENKINS);
    object.name = "a".repeat(100_000).into();
    // By backtracking this would not end.
    assert!(!compile("{name: '(a+)+b'}").unwrap().selects(&object, &declared));
}
