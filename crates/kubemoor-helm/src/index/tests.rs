use super::*;
use crate::record::ReleaseStatus;
use crate::release::{StoredRecords, assemble};
use crate::samples::{SampleRecord, assembled};
use crate::storage::TrustedRecordNamespaces;
use kubemoor_declare::catalog::{Catalog, KindFacts};
use kubemoor_declare::path::Segment;

mod claims;

const CONFIG: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: shared, name: config}\n";
const OTHER: &str = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: shared, name: other}\n";
const WEB: &str = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n";
const SCALER: &str =
    "---\napiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\n";
const WIDGET: &str = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: web}\n";

fn release(name: &str, revision: u64, manifest: &str) -> Release {
    assembled(SampleRecord { name, revision, manifest, ..SampleRecord::default() }, None)
}

fn id(name: &str) -> ReleaseId {
    ReleaseId { namespace: "shop".into(), name: name.into() }
}

fn config(name: &str) -> ObjectId {
    ObjectId::namespaced("", "ConfigMap", "shared", name)
}

/// An index into which these releases were put, one after the other.
fn index(releases: impl IntoIterator<Item = Release>) -> Index {
    let mut index = Index::default();
    for release in releases {
        index.set(release);
    }
    index
}

/// The claims on a ConfigMap of the namespace `shared`, as `name revision`,
/// the first in front.
#[track_caller]
fn check_claims(index: &Index, name: &str, wanted: &[&str]) {
    let found: Vec<String> = index
        .claims(&config(name))
        .iter()
        .map(|claim| format!("{} {}", claim.id.name, claim.state.revision))
        .collect();
    assert_eq!(found, wanted, "{name}");
}

/// The resources, as `group/version plural kind`, with `+scale` where there is
/// one.
#[track_caller]
fn check_resources(index: &Index, wanted: &[&str]) {
    let found: Vec<String> = index
        .resources()
        .into_iter()
        .map(|it| {
            let scale = if it.scale { " +scale" } else { "" };
            format!("{}/{} {} {}{scale}", it.group, it.version, it.plural, it.kind)
        })
        .collect();
    assert_eq!(found, wanted);
}

/// The kind of a resource, and where its scale is.
#[track_caller]
fn check_kind(index: &Index, (group, plural): (&str, &str), wanted: Option<(&str, Option<&Path>)>) {
    assert_eq!(index.kind_of_resource(group, plural), wanted, "{plural} of {group:?}");
}

fn path(names: [&str; 2]) -> Path {
    Path(names.map(|name| Segment::Field(name.to_owned())).into())
}

/// A release that was assembled when `widgets` were known to have this scale.
fn of_widgets(name: &str, scale: Option<Path>) -> Release {
    let mut catalog = Catalog::with_core();
    catalog.insert(KindFacts {
        group: "example.com".to_owned(),
        kind: "Widget".to_owned(),
        plural: "widgets".to_owned(),
        namespaced: true,
        versions: vec!["v1".to_owned()],
        scale_replicas_path: scale,
    });
    let given = SampleRecord { name, manifest: WIDGET, ..SampleRecord::default() };
    assemble(
        StoredRecords { stored: &given.id(), latest: (&given.head(), &given.payload()), baseline: None },
        None,
        &TrustedRecordNamespaces::default(),
        &catalog,
        &Arc::default(),
    )
    .release
}

#[test]
fn the_claim_seen_first_stays_first() {
    let mut index = index([release("a", 1, CONFIG), release("b", 1, CONFIG), release("c", 1, CONFIG)]);
    check_claims(&index, "config", &["a 1", "b 1", "c 1"]);
    index.set(release("a", 2, CONFIG));
    index.set(release("b", 2, CONFIG));
    check_claims(&index, "config", &["a 2", "b 2", "c 1"]);
    assert_eq!(index.objects(), 1);
    assert_eq!(index.releases().count(), 3);
}

#[test]
fn a_release_takes_the_place_of_its_earlier_self() {
    let mut index = index([release("a", 1, CONFIG)]);
    index.set(release("a", 2, CONFIG));
    check_claims(&index, "config", &["a 2"]);
    assert_eq!(index.release(&id("a")).unwrap().state.revision, 2);
    assert_eq!((index.releases().count(), index.objects()), (1, 1));
    assert!(Arc::ptr_eq(index.claims(&config("config"))[0], index.release(&id("a")).unwrap()));
}

#[test]
fn releases_of_one_name_in_two_namespaces_are_two() {
    let elsewhere = assembled(
        SampleRecord {
            name: "a",
            namespace: "bank",
            revision: 7,
            manifest: CONFIG,
            ..SampleRecord::default()
        },
        None,
    );
    let mut index = index([release("a", 1, CONFIG), elsewhere]);
    check_claims(&index, "config", &["a 1", "a 7"]);
    index.remove(&id("a"));
    check_claims(&index, "config", &["a 7"]);
}

#[test]
fn release_loses_its_claim_on_objects_removed_from_manifest() {
    let both = format!("{CONFIG}{OTHER}");
    let mut index = index([release("a", 1, &both), release("b", 1, CONFIG)]);
    assert_eq!(index.objects(), 2);
    index.set(release("a", 2, OTHER));
    check_claims(&index, "config", &["b 1"]);
    check_claims(&index, "other", &["a 2"]);
    index.set(release("a", 3, ""));
    check_claims(&index, "other", &[]);
    assert_eq!((index.releases().count(), index.objects()), (2, 1));
    // Who gave a claim up stands behind those who did not.
    index.set(release("a", 4, CONFIG));
    check_claims(&index, "config", &["b 1", "a 4"]);
}

#[test]
fn objects_declared_only_by_the_baseline_are_claimed() {
    let base = SampleRecord { name: "a", manifest: CONFIG, ..SampleRecord::default() };
    let next = SampleRecord {
        name: "a",
        revision: 2,
        status: ReleaseStatus::PendingUpgrade,
        manifest: OTHER,
        ..SampleRecord::default()
    };
    let mut index = index([assembled(next, Some(base))]);
    check_claims(&index, "config", &["a 2"]);
    check_claims(&index, "other", &["a 2"]);
    // The upgrade ends.
    index.set(release("a", 2, OTHER));
    check_claims(&index, "config", &[]);
    check_claims(&index, "other", &["a 2"]);
}

#[test]
fn a_release_that_is_taken_out_claims_nothing() {
    let mut index = index([release("a", 1, CONFIG), release("b", 1, &format!("{CONFIG}{OTHER}"))]);
    index.remove(&id("unknown"));
    check_claims(&index, "config", &["a 1", "b 1"]);
    index.remove(&id("a"));
    assert!(index.release(&id("a")).is_none());
    check_claims(&index, "config", &["b 1"]);
    index.remove(&id("b"));
    check_claims(&index, "config", &[]);
    assert_eq!((index.releases().count(), index.objects()), (0, 0));
    check_resources(&index, &[]);
    index.remove(&id("b"));
    index.set(release("a", 1, CONFIG));
    check_claims(&index, "config", &["a 1"]);
}

#[test]
fn resources_are_those_that_some_release_declares_now() {
    // Served no more, and so sent in the version that is.
    let beta = WEB.replace("apps/v1", "apps/v1beta1");
    let scaler = |version: &str| SCALER.replace("/v1", &format!("/{version}"));
    let mut index = index([release("a", 1, &format!("{CONFIG}{WEB}")), release("b", 1, WEB)]);
    check_resources(&index, &["/v1 configmaps ConfigMap", "apps/v1 deployments Deployment +scale"]);
    index.set(release("b", 2, &format!("{beta}{}", scaler("v2"))));
    index.set(release("c", 1, &scaler("v1")));
    check_resources(
        &index,
        &[
            "/v1 configmaps ConfigMap",
            "apps/v1 deployments Deployment +scale",
            "autoscaling/v1 horizontalpodautoscalers HorizontalPodAutoscaler",
            "autoscaling/v2 horizontalpodautoscalers HorizontalPodAutoscaler",
        ],
    );
    index.remove(&id("a"));
    index.remove(&id("c"));
    check_resources(
        &index,
        &[
            "apps/v1 deployments Deployment +scale",
            "autoscaling/v2 horizontalpodautoscalers HorizontalPodAutoscaler",
        ],
    );
}

#[test]
fn resources_are_those_of_both_records() {
    let base = SampleRecord { manifest: WEB, ..SampleRecord::default() };
    let next = SampleRecord {
        revision: 2,
        status: ReleaseStatus::PendingUpgrade,
        manifest: CONFIG,
        ..SampleRecord::default()
    };
    let index = index([assembled(next, Some(base))]);
    check_resources(&index, &["/v1 configmaps ConfigMap", "apps/v1 deployments Deployment +scale"]);
}

#[test]
fn unserved_kind_has_no_resource_until_discovery_finds_it() {
    let mut index = index([release("a", 1, WIDGET)]);
    assert_eq!(index.objects(), 1);
    check_resources(&index, &[]);
    check_kind(&index, ("example.com", "widgets"), None);
    index.set(of_widgets("a", None));
    check_resources(&index, &["example.com/v1 widgets Widget"]);
    check_kind(&index, ("example.com", "widgets"), Some(("Widget", None)));
}

#[test]
fn declared_resource_yields_its_kind_and_scale_path() {
    let index = index([release("a", 1, &format!("{CONFIG}{WEB}"))]);
    let replicas = path(["spec", "replicas"]);
    check_kind(&index, ("apps", "deployments"), Some(("Deployment", Some(&replicas))));
    check_kind(&index, ("", "configmaps"), Some(("ConfigMap", None)));
    check_kind(&index, ("", "deployments"), None);
    check_kind(&index, ("apps", "configmaps"), None);
    check_kind(&index, ("apps", "Deployment"), None);
    check_kind(&index, ("apps", "statefulsets"), None);
}

#[test]
fn scale_path_is_kept_when_another_release_lacks_it() {
    let (size, count) = (path(["spec", "size"]), path(["spec", "count"]));
    let widgets = ("example.com", "widgets");
    let mut index = index([of_widgets("a", None)]);
    check_kind(&index, widgets, Some(("Widget", None)));
    index.set(of_widgets("b", Some(size.clone())));
    check_kind(&index, widgets, Some(("Widget", Some(&size))));
    // Neither one that has no scale nor one that has no plural.
    index.set(of_widgets("c", None));
    index.set(release("d", 1, WIDGET));
    check_kind(&index, widgets, Some(("Widget", Some(&size))));
    // Who moves it is believed.
    index.set(of_widgets("a", Some(count.clone())));
    check_kind(&index, widgets, Some(("Widget", Some(&count))));
}

/// The release `shop/web` as records in the namespace `storage` have it.
fn stored_in(storage: &str, status: ReleaseStatus, manifest: &str) -> Release {
    let given = SampleRecord { status, manifest, ..SampleRecord::default() };
    let stored = ReleaseId { namespace: storage.into(), name: "web".into() };
    let trusted: TrustedRecordNamespaces = [("flux-system", "shop"), ("ci", "shop")].into_iter().collect();
    let latest = (&given.head(), &given.payload());
    assemble(
        StoredRecords { stored: &stored, latest, baseline: None },
        None,
        &trusted,
        &Catalog::with_core(),
        &Arc::default(),
    )
    .release
}

/// Who speaks for `shop/web`: where its records lie, and whether it counts.
#[track_caller]
fn check_speaker(index: &Index, wanted: Option<(&str, bool)>) {
    let speaker = index.release(&id("web"));
    assert_eq!(speaker.map(|it| (it.storage.as_str(), it.invalid.is_none())), wanted);
    assert_eq!(index.releases().count(), usize::from(wanted.is_some()));
}

#[test]
fn release_is_found_by_its_id_and_by_record_location() {
    let index = index([stored_in("flux-system", ReleaseStatus::Deployed, CONFIG)]);
    check_speaker(&index, Some(("flux-system", true)));
    let stored = ReleaseId { namespace: "flux-system".into(), name: "web".into() };
    assert!(Arc::ptr_eq(index.release(&id("web")).unwrap(), index.stored(&stored).unwrap()));
    assert!(index.release(&stored).is_none() && index.stored(&id("web")).is_none());
}

#[test]
fn two_histories_of_one_release_both_claim_but_none_repairs() {
    use ReleaseStatus::{Deployed, Uninstalled};
    let mut index = index([stored_in("flux-system", Deployed, CONFIG)]);
    index.set(stored_in("shop", Deployed, OTHER));
    check_speaker(&index, Some(("shop", false)));
    check_claims(&index, "config", &["web 1"]);
    check_claims(&index, "other", &["web 1"]);
    assert!(index.release_without_rival(&id("web")).is_none() && index.stored(&id("web")).is_some());
    index.set(stored_in("ci", Deployed, CONFIG));
    assert_eq!(index.claims(&config("config")).len(), 2);
    index.remove(&id("web"));
    check_speaker(&index, Some(("ci", false)));
    check_claims(&index, "other", &[]);
    index.set(stored_in("ci", Uninstalled, CONFIG));
    check_speaker(&index, Some(("flux-system", true)));
    let flux = ReleaseId { namespace: "flux-system".into(), name: "web".into() };
    index.remove(&flux);
    check_speaker(&index, Some(("ci", true)));
    assert_eq!(
        index.release_without_rival(&ReleaseId { namespace: "ci".into(), ..id("web") }).unwrap().storage,
        "ci"
    );
    index.remove(&ReleaseId { namespace: "ci".into(), ..flux });
    check_speaker(&index, None);
}

#[test]
fn old_release_is_dropped_when_its_records_name_another_release() {
    let mut index = index([stored_in("flux-system", ReleaseStatus::Deployed, CONFIG)]);
    let given = SampleRecord { namespace: "flux-system", manifest: OTHER, ..SampleRecord::default() };
    index.set(assembled(given, None));
    check_speaker_of(&index, "shop", None);
    check_speaker_of(&index, "flux-system", Some("flux-system"));
    check_claims(&index, "config", &[]);
    check_claims(&index, "other", &["web 1"]);
}

#[track_caller]
fn check_speaker_of(index: &Index, namespace: &str, wanted: Option<&str>) {
    let id = ReleaseId { namespace: namespace.into(), name: "web".into() };
    assert_eq!(index.release(&id).map(|it| it.storage.as_str()), wanted, "web in {namespace}");
}

#[test]
fn index_capacity_is_limited_per_namespace_and_freed_on_removal() {
    let long = |name: &str, namespace: &str, size: usize| {
        let part = |number| {
            format!(
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{number}}}\ndata: {{a: {}}}\n",
                "a".repeat(size / 4)
            )
        };
        let manifest: String = (0..4).map(part).collect();
        assembled(SampleRecord { name, namespace, manifest: &manifest, ..SampleRecord::default() }, None)
    };
    let half = MAX_WEIGHT / 2 - (2 << 20);
    let mut index = Index::within(Some(3 * MAX_WEIGHT / 2));
    for (name, namespace) in [("a", "shop"), ("b", "shop"), ("a", "bank")] {
        let release = long(name, namespace, half);
        assert_eq!(index.check_room_for(&release), Ok(()));
        index.set(release);
    }
    assert_eq!(index.check_room_for(&long("c", "shop", half)), Err(IndexFullError::Namespace));
    assert!(matches!(index.check_room_for(&long("c", "mall", half)), Err(IndexFullError::All { .. })));
    // In place of itself there is room, and after others have gone.
    assert_eq!(index.check_room_for(&long("b", "shop", half)), Ok(()));
    index.remove(&id("a"));
    for namespace in ["shop", "mall"] {
        assert_eq!(index.check_room_for(&long("c", namespace, half)), Ok(()), "{namespace}");
    }
    index.remove(&id("b"));
    index.remove(&ReleaseId { namespace: "bank".into(), name: "a".into() });
    assert_eq!((index.weight, index.weights.len()), (0, 0));
}
