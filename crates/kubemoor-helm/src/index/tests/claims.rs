use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use crate::samples::{SampleRecord, assembled};

const OBJECTS: [&str; 4] = ["a", "b", "c", "d"];

fn config(name: &str) -> ObjectId {
    ObjectId::namespaced("", "ConfigMap", "shop", name)
}

fn release(name: &str, declares: &[&str]) -> Arc<Release> {
    let document = |object: &&str| {
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{namespace: shop, name: {object}}}\n")
    };
    let manifest: String = declares.iter().map(document).collect();
    Arc::new(assembled(SampleRecord { name, manifest: &manifest, ..SampleRecord::default() }, None))
}

/// A release that declares some objects, or goes.
fn step() -> impl Strategy<Value = (&'static str, Option<Vec<&'static str>>)> {
    let objects = prop::sample::subsequence(OBJECTS.to_vec(), 0..=OBJECTS.len());
    (prop::sample::select(vec!["one", "two", "three"]), prop::option::weighted(0.7, objects))
}

proptest! {
    #[test]
    fn releases_stay_in_the_order_in_which_they_came_to_declare_an_object(
        steps in prop::collection::vec(step(), 0..20)
    ) {
        let (mut table, mut plain) = (ClaimTable::default(), BTreeMap::<&str, Vec<&str>>::new());
        let mut before = BTreeMap::new();
        for (name, declares) in steps {
            let declared = declares.as_deref().unwrap_or_default();
            let after = declares.as_ref().map(|declared| release(name, declared));
            table.replace(before.remove(name).as_ref(), after.as_ref());
            before.extend(after.map(|after| (name, after)));
            for object in OBJECTS {
                let claims = plain.entry(object).or_default();
                match (declared.contains(&object), claims.contains(&name)) {
                    (true, false) => claims.push(name),
                    (false, _) => claims.retain(|it| *it != name),
                    (true, true) => {}
                }
                let found: Vec<_> = table.get(&config(object)).iter().map(|it| it.id.name.to_string()).collect();
                prop_assert_eq!(&found, claims);
            }
            prop_assert_eq!(table.objects(), plain.values().filter(|claims| !claims.is_empty()).count());
        }
    }
}
