mod known {
    use crate::spelling::*;
    use kubemoor_declare::catalog::Catalog;
    use kubemoor_declare::model::Gvk;

    #[test]
    fn unknown_deployment_field_is_reported_with_a_suggestion() {
        let gvk = Gvk { group: "apps".to_owned(), version: "v1".to_owned(), kind: "Deployment".to_owned() };
        let schema = Catalog::with_core().schema(&gvk).unwrap();
        let check = |path: &str, expected: Option<&str>| {
            let unknown = Mask(vec![Pattern::parse(path).unwrap()]).unknown_fields(&schema);
            assert_eq!(unknown, Vec::from_iter(expected), "{path}");
        };
        for known in [
            "*",
            "/spec/replicas",
            "/spec/template/spec/containers/[name=app]/image",
            "/spec/template/spec/containers/0/image",
            "/spec/template/spec/containers/*/image",
            "/metadata/annotations/example.org~1anything",
            "/metadata/annotations/*",
            "/spec/template/spec/nodeSelector/disk",
            "/spec/*/anything",
        ] {
            check(known, None);
        }
        check("/spec/replcas", Some("there is no field /spec/replcas: did you mean replicas?"));
        check("/sepc/replicas", Some("there is no field /sepc: did you mean spec?"));
        check("/spec/replicas/now", Some("there is no field /spec/replicas/now"));
        check("/spec/zzz", Some("there is no field /spec/zzz"));
        let image = "/spec/template/spec/containers/[name=app]/imgae";
        check(image, Some(&format!("there is no field {image}: did you mean image?")));
        let app = "/spec/template/spec/containers/app";
        check(
            &format!("{app}/image"),
            Some(&format!(
                "there is no field {app}: it is inside a list: select an element, such as [name=app], or use \
                 * for all"
            )),
        );
    }
}

mod nearest {
    use crate::spelling::*;

    #[test]
    fn nearest_name_differs_by_a_few_letters() {
        let names = ["replicas", "revisionHistoryLimit", "template", "selector"];
        for (wanted, expected) in [
            ("replcas", Some("replicas")),
            ("Replicas", Some("replicas")),
            ("repilcas", Some("replicas")),
            ("revisionHistory", Some("revisionHistoryLimit")),
            ("image", None),
            ("", None),
        ] {
            assert_eq!(nearest(wanted, names), expected, "{wanted}");
        }
    }

    #[test]
    fn kind_is_meant_by_other_letters_plurals_and_slips() {
        for (wanted, expected) in [
            ("deployment", Some("Deployment")),
            ("deployments", Some("Deployment")),
            ("Configmap", Some("ConfigMap")),
            ("Deploymnet", Some("Deployment")),
            ("StatefullSet", Some("StatefulSet")),
            ("Deployment", None),
            ("Widget", None),
            ("Rule", None),
            ("", None),
        ] {
            assert_eq!(similar_kind(wanted).as_deref(), expected, "{wanted}");
        }
    }
}
