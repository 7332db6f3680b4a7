use std::collections::BTreeMap;

use super::*;

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
