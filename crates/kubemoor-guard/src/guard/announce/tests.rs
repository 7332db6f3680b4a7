use jiff::Timestamp;

use super::*;
use kubemoor_reconcile::drifts::ObjectDrift;

fn incident(kind: DriftKind, repaired: Option<Result<(), String>>, kept: Option<&str>) -> Incident {
    let object = ObjectId::namespaced("", "ConfigMap", "shop", "settings");
    Incident {
        release: ReleaseId { namespace: "shop".into(), name: "web".into() },
        revision: 3,
        drifted: ObjectDrift {
            by: Some("kubectl-edit".to_owned()),
            repaired,
            unrepaired_reason: kept.map(Into::into),
            ..ObjectDrift::new(object, kind, Timestamp::UNIX_EPOCH)
        },
    }
}

#[test]
fn event_note_names_drift_author_and_repair_outcome() {
    let check = |incident: &Incident, reason: &str, warning: bool, end: &str| {
        let notice = notice(incident);
        assert_eq!((notice.reason, notice.warning), (reason, warning));
        let start = "ConfigMap/settings in namespace shop of Helm release shop/web (revision 3) ";
        assert_eq!(notice.note, format!("{start}{end}"));
    };
    check(
        &incident(DriftKind::Missing, Some(Ok(())), None),
        "Repaired",
        false,
        "is missing, by kubectl-edit; repaired",
    );
    check(
        &incident(DriftKind::Changed, Some(Err("a\nquota".to_owned())), None),
        "NotRepaired",
        true,
        "does not match its release: [], by kubectl-edit; not repaired: a quota",
    );
    check(
        &incident(DriftKind::Changed, None, Some("the policy reports")),
        "Drifted",
        true,
        "does not match its release: [], by kubectl-edit; the policy reports",
    );
}
