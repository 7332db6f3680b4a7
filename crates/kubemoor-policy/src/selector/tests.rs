use std::collections::BTreeMap;

use crate::selector::*;

fn matches(expression: &str, labels: &[(&str, &str)]) -> bool {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    let selector = Selector::parse(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
    selector.matches(|key| labels.get(key).map(|value| (*value).into()))
}

#[test]
fn expressions_mean_what_they_mean_to_the_api_server() {
    let labels = [("tier", "web"), ("app.io/name", "shop"), ("weight", "7")];
    let check = |expression: &str, expected: bool| {
        assert_eq!(matches(expression, &labels), expected, "{expression}");
    };
    check("", true);
    check("tier", true);
    check("!tier", false);
    check("legacy", false);
    check("!legacy", true);
    check("tier=web", true);
    check("tier == web", true);
    check("tier=api", false);
    check("tier!=api", true);
    check("legacy!=yes", true);
    check("tier in (api, web)", true);
    check("tier in (api)", false);
    check("tier notin (api)", true);
    check("legacy notin (yes)", true);
    check("tier notin(web)", false);
    check("app.io/name=shop,tier in (web,api),!legacy", true);
    check("app.io/name=shop,tier in (api),!legacy", false);
    check("weight>6", true);
    check("weight > 7", false);
    check("weight<8", true);
    check("tier>1", false);
    check("tier=", false);
}

#[test]
fn an_expression_that_cannot_be_read_is_refused() {
    for text in [
        "tier in web",
        "tier in (web",
        "tier x",
        "a b",
        "=web",
        "tier=a b",
        "-tier",
        "tier,,app",
        "w>x",
        "a/b/c",
    ] {
        assert!(Selector::parse(text).is_err(), "{text}");
    }
}

#[test]
fn the_structure_means_the_same() {
    let check = |yaml: &str, expected: Result<bool, &str>| {
        let spec: LabelSelector = serde_saphyr::from_str(yaml).unwrap();
        let mut flaws = Flaws::default();
        let selector = Selector::compile(&spec, "at", &mut flaws);
        let result = flaws.or(selector).map(|it| it.matches(|key| (key == "tier").then(|| "web".into())));
        match (result, expected) {
            (Ok(result), Ok(expected)) => assert_eq!(result, expected, "{yaml}"),
            (Err(flaws), Err(field)) => assert_eq!(flaws[0].field, field, "{yaml}"),
            (result, _) => panic!("{yaml}: {result:?}"),
        }
    };
    check("{}", Ok(true));
    check("{matchLabels: {tier: web}}", Ok(true));
    check("{matchLabels: {tier: api}}", Ok(false));
    check("{matchExpressions: [{key: tier, operator: In, values: [web]}]}", Ok(true));
    check("{matchExpressions: [{key: tier, operator: NotIn, values: [web]}]}", Ok(false));
    check("{matchExpressions: [{key: tier, operator: Exists}]}", Ok(true));
    check("{matchExpressions: [{key: tier, operator: DoesNotExist}]}", Ok(false));
    check("{matchExpressions: [{key: tier, operator: In}]}", Err("at.matchExpressions[0]"));
    check("{matchExpressions: [{key: tier, operator: Exists, values: [a]}]}", Err("at.matchExpressions[0]"));
    check("{matchLabels: {\"a b\": c}}", Err("at.matchLabels"));
}

mod glob {
    use crate::selector::*;

    #[test]
    fn globs_match_whole_names() {
        let check = |texts: &[&str], name: &str, expected: bool| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            let mut flaws = Flaws::default();
            let globs = Globs::compile(&texts, "at", &mut flaws);
            assert_eq!(flaws.or(globs).unwrap().matches(name), expected, "{texts:?} and {name}");
        };
        check(&[], "anything", true);
        check(&["shop"], "shop", true);
        check(&["shop"], "shop-web", false);
        check(&["shop-*"], "shop-web", true);
        check(&["shop-*"], "shop", false);
        check(&["shop-*"], "my-shop-web", false);
        check(&["*"], "x", true);
        check(&["a?c"], "abc", true);
        check(&["a?c"], "abbc", false);
        check(&["a.c"], "abc", false);
        check(&["shop", "prod-*"], "prod-eu", true);
        check(&["a*b*c"], "axbxbxc", true);
        check(&["*-eu"], "prod-eu-eu", true);
        check(&["*a?c"], "aacbc-abc", true);
        check(&["**"], "", true);
        check(&["?"], "", false);
        check(&["?"], "é", true);
        check(&["?"], "*", false);
    }

    #[test]
    fn glob_of_many_stars_is_matched_without_a_search_tree() {
        // By backtracking this would not end.
        let glob = format!("{}b", "*a".repeat(126));
        let globs = Globs::parse(&[glob]).unwrap();
        assert!(!globs.matches(&"a".repeat(253)));
        assert!(globs.matches(&format!("{}b", "a".repeat(252))));
    }

    #[test]
    fn a_glob_that_can_match_no_name_is_named() {
        for text in ["", "Shop", "a b", "[ab]", "a/b", "{a,b}"] {
            let mut flaws = Flaws::default();
            Globs::compile(&[text.to_owned()], "at", &mut flaws);
            let flaws = flaws.or(()).unwrap_err();
            assert_eq!(
                (flaws[0].field.as_str(), flaws[0].reason),
                ("at[0]", FlawReason::InvalidGlob),
                "{text:?}"
            );
        }
    }
}

mod target {
    use crate::samples::declared;
    use crate::selector::{MAX_REGEX, *};

    const JENKINS: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: jenkins
  namespace: ci
  labels: {app: jenkins, tier: build}
  annotations: {team: platform}
";

    fn compile(yaml: &str) -> Result<RuleTarget, Vec<crate::flaw::Flaw>> {
        let spec: TargetSpec = serde_saphyr::from_str(yaml).unwrap();
        let mut flaws = Flaws::default();
        let target = RuleTarget::compile(Some(&spec), "target", &mut Regexes::default(), &mut flaws);
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
}
