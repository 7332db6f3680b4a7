//! Events on a real API server.

use kubemoor_cluster::client::events::{Events, Notice, Regarding};
use kubemoor_cluster::client::lease::Leadership;
use kubemoor_runtime::metrics::EventFate;

use crate::support::{Caller, ControlPlane, Identity};

#[tokio::test]
#[ignore = "slow: make test-all"]
async fn events_about_cluster_scoped_objects_are_written() {
    let control_plane = ControlPlane::get();
    let name = control_plane.namespace("cluster-events").await;
    let client = control_plane.client(Identity::Admin).await;
    let events = Events::new(client, Leadership::alone(), "test".to_owned());
    let notice = Notice {
        regarding: Regarding {
            api_version: "rbac.authorization.k8s.io/v1".to_owned(),
            kind: "ClusterRole".to_owned(),
            namespace: None,
            name: name.clone(),
            uid: None,
        },
        related: None,
        warning: true,
        reason: "Drifted",
        action: "Judge",
        note: "a note".to_owned(),
    };
    assert_eq!(events.publish(&notice).await, Ok(EventFate::Written));
    let admin = Caller::new(control_plane, Identity::Admin).await;
    let found = admin.get("/apis/events.k8s.io/v1/events").await.done().unwrap();
    let is_ours = |event: &&serde_json::Value| event["regarding"]["name"] == *name;
    let ours: Vec<_> = found["items"].as_array().unwrap().iter().filter(is_ours).collect();
    assert_eq!(ours.len(), 1, "{ours:?}");
    assert_eq!(ours[0]["note"], "a note");
}
