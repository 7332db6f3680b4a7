//! `kubemoor doctor`: checks an installation with the user's own rights, and prints for each check the result and what
//! to do. This file reads the cluster; [`checks`] evaluates what was read. Nothing is changed: the one write is a dry
//! run.

mod checks;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use serde_json::{Value, json};

pub(super) use self::checks::CheckResult;
use self::checks::{
    CheckInput, CheckState, DeclaredKinds, Observation, Problem, ReleaseReadiness, Workload, live_driver,
};
use super::CommandOutcome;
use super::connect::{self, ClusterArgs, GuardArgs, failed};
use super::list::Items;
use super::output::{self, BAD, GOOD, NOTE, OutputArgs, PLAIN, StyledText, Table};
use kubemoor_cluster::client::access::{self, Right};
use kubemoor_cluster::client::call::ClusterError;
use kubemoor_cluster::client::connection::{ClusterAccess, ClusterConnection};
use kubemoor_cluster::client::lease::{self, LeaderInfo, Leadership};
use kubemoor_cluster::client::objects::{ObjectTarget, Objects};
use kubemoor_cluster::client::registrations::{Registrations, WebhookKind};
use kubemoor_cluster::client::{ApiResource, discovery, guarded};
use kubemoor_declare::model::{Actor, build};
use kubemoor_guard::webhook::order::{PROBE, PROBE_ANSWER};
use kubemoor_guard::webhook::registration::{NAME, ORDERS, emergency, redact_tokens};
use kubemoor_helm::index::Index;
use kubemoor_inspect::failure::InspectError;
use kubemoor_inspect::guard::ForwardedGuard;
use kubemoor_inspect::ledger::LedgerSource;
use kubemoor_inspect::policies;
use kubemoor_inspect::reading::{ClusterReader, LeaseCache};
use kubemoor_ledger::query::Filter;
use kubemoor_policy::guarded::LeaseReference;
use kubemoor_policy::resolver::Labels;
use kubemoor_runtime::config::RecordDriver;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    guard: GuardArgs,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The name of the GuardedRelease that is created as a dry run.
const PROBED: &str = "kubemoor-doctor";

/// The most namespaces in which a right is checked that the guard lacks cluster-wide.
const NAMESPACES: usize = 20;

/// The scope in which the guard needs a right.
enum Scope {
    Cluster,
    /// In the namespaces of the releases that it guards.
    Releases,
    /// On its own Lease.
    Lease,
    /// On its own webhook configurations, with `--register`.
    Webhooks,
}

/// Rights that the guard needs: verb, group and resource.
const RIGHTS: [(Scope, &str, &str, &str); 12] = [
    (Scope::Cluster, "list", "", "namespaces"),
    (Scope::Cluster, "list", "apiextensions.k8s.io", "customresourcedefinitions"),
    (Scope::Cluster, "list", "kubemoor.dev", "driftpolicies"),
    (Scope::Cluster, "create", "authorization.k8s.io", "subjectaccessreviews"),
    (Scope::Releases, "watch", "", "secrets"),
    (Scope::Releases, "watch", "apps", "deployments"),
    (Scope::Releases, "watch", "kubemoor.dev", "driftallowances"),
    (Scope::Releases, "create", "kubemoor.dev", "guardedreleases"),
    (Scope::Releases, "create", "events.k8s.io", "events"),
    (Scope::Lease, "update", "coordination.k8s.io", "leases"),
    (Scope::Webhooks, "update", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    (Scope::Webhooks, "update", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
];

pub(super) fn run(args: Args) -> anyhow::Result<CommandOutcome> {
    let Args { output, guard, cluster } = args;
    let observation = connect::run(observe(guard.place(), &cluster))?;
    let results = checks::all(&observation);
    let needs_person = results.iter().any(|result| result.state == CheckState::Attention);
    let printed = Items::new(results.as_slice());
    let outcome = output::print(&output.output, &printed, || table(&results))?;
    Ok(if needs_person { CommandOutcome::Found } else { outcome })
}

fn table(results: &[CheckResult]) -> StyledText {
    let mut table = Table::new(["CHECK", "STATE", "MESSAGE"]);
    for CheckResult { check, state, message } in results {
        let (word, style) = match state {
            CheckState::Ok => ("ok", GOOD),
            CheckState::Attention => ("attention", BAD),
            CheckState::Unknown => ("unknown", NOTE),
        };
        table.styled([((*check).to_owned(), PLAIN), (word.to_owned(), style), (message.clone(), PLAIN)]);
    }
    table.text()
}

/// Reads what the user may read; missing rights become a [`Problem`]. Fails if the API server does not answer the user.
async fn observe(place: LeaseReference, cluster: &ClusterArgs) -> anyhow::Result<Observation> {
    let connection = cluster.connect().await?;
    let client = &connection.client;
    let server = match discovery::version(client).await {
        Err(error) if !error.is_forbidden() => {
            return Err(failed(&connection, "read the API server's version", error).into());
        }
        answer => answer.map_err(|error| unread("get the path /version", &error)),
    };
    let (clock, lease, workload, is_open, validating, mutating) = tokio::join!(
        discovery::clock(client),
        lease::read_leader_info(client, &place),
        workload(client, &place),
        emergency::is_enforcement_disabled(client),
        configuration::<ValidatingWebhookConfiguration>(client, "validatingwebhookconfigurations"),
        configuration::<MutatingWebhookConfiguration>(client, "mutatingwebhookconfigurations"),
    );
    let now = Timestamp::now();
    let lease_right = format!("get leases.coordination.k8s.io in namespace {}", place.namespace);
    let lease = lease.map_err(|error| unread(&lease_right, &error));
    let driver = validating.as_ref().map_or(RecordDriver::Secret, |live| live_driver(live.as_ref()));
    let (policies, releases, kinds, probe, (ledger, metrics)) = tokio::join!(
        policies::read(&connection, None),
        releases(client),
        declared_kinds(&connection, driver),
        probe(client, &place),
        guard_answers(&connection, &place, (&lease, cluster.access())),
    );
    let rights = missing_rights(client, &place, &workload, &releases).await;
    Ok(Observation {
        now,
        skew: clock.map(|clock| clock.duration_since(now)).unwrap_or_default(),
        client: build::VERSION.to_owned(),
        server,
        lease,
        workload,
        is_open: is_open.map_err(|error| match error {
            emergency::EmergencyError::Read(error) => {
                unread("get validatingwebhookconfigurations.admissionregistration.k8s.io", &error)
            }
            other => Problem::Unknown(other.to_string()),
        }),
        validating,
        mutating,
        probe,
        kinds,
        rights,
        policies: policies.map_err(|error| uninspected("list driftpolicies.kubemoor.dev", &error)),
        releases,
        ledger,
        metrics,
        place,
    })
}

/// The problem of a failed read: the missing right, or the error.
fn unread(right: &str, error: &ClusterError) -> Problem {
    Problem::Unknown(match error.is_forbidden() {
        true => format!("you may not {right}"),
        false => format!("cannot {right}: {error}"),
    })
}

fn uninspected(right: &str, error: &InspectError) -> Problem {
    Problem::Unknown(match error.is_forbidden() {
        true => format!("you may not {right}"),
        false => error.to_string(),
    })
}

async fn configuration<C: WebhookKind>(client: &kube::Client, plural: &str) -> CheckInput<Option<C>> {
    let read = Registrations::<C>::new(client.clone(), Leadership::alone()).read(NAME).await;
    read.map_err(|error| unread(&format!("get {plural}.admissionregistration.k8s.io"), &error))
}

fn objects(client: &kube::Client) -> Objects {
    Objects::new(client.clone(), NonZeroU32::MIN)
}

/// Reads the Deployment of the guard, which has the same name as its Lease.
async fn workload(client: &kube::Client, place: &LeaseReference) -> CheckInput<Option<Workload>> {
    let LeaseReference { namespace, name } = place;
    let target = ObjectTarget {
        resource: ApiResource::new("apps", "v1", "Deployment", "deployments"),
        namespace: Some(namespace.clone()),
        name: name.clone(),
    };
    let read = objects(client).get(&target).await;
    let read =
        read.map_err(|error| unread(&format!("get deployments.apps in namespace {namespace}"), &error))?;
    Ok(read.map(|deployment| {
        let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_u64);
        let pod = deployment.pointer("/spec/template/spec").unwrap_or(&Value::Null);
        let containers = pod.get("containers").and_then(Value::as_array).into_iter().flatten();
        let mut arguments = containers.filter_map(|container| container.get("args")?.as_array()).flatten();
        Workload {
            wanted: number("/spec/replicas").unwrap_or(1),
            ready: number("/status/readyReplicas").unwrap_or_default(),
            account: pod.get("serviceAccountName").and_then(Value::as_str).unwrap_or(name).to_owned(),
            registers: arguments.any(|argument| argument == "--register"),
        }
    }))
}

/// Creates an object as a dry run, on which the guard's webhook warns. Returns whether that warning came back.
async fn probe(client: &kube::Client, place: &LeaseReference) -> CheckInput<bool> {
    let resource = guarded::resource();
    let object = json!({
        "apiVersion": resource.api_version(), "kind": guarded::KIND,
        "metadata": {"name": PROBED, "namespace": place.namespace, "annotations": {PROBE: "doctor"}},
        "spec": {},
    });
    let target = ObjectTarget { resource, namespace: Some(place.namespace.clone()), name: PROBED.to_owned() };
    match objects(client).dry_run_create(&target, &object).await {
        Ok(warnings) => Ok(warnings.iter().any(|warning| warning == PROBE_ANSWER)),
        Err(error) => Err(match error.failed_webhook().filter(|message| message.contains(ORDERS)) {
            // The message quotes the address, which holds a token.
            Some(message) => Problem::Attention(format!(
                "the API server cannot call the guard, and `failurePolicy: Fail` refuses changes: {}",
                redact_tokens(message)
            )),
            None => unread(
                &format!("create guardedreleases.kubemoor.dev in namespace {}", place.namespace),
                &error,
            ),
        }),
    }
}

/// The states of the GuardedReleases; `None` if the CRD is not installed.
async fn releases(client: &kube::Client) -> CheckInput<Option<Vec<ReleaseReadiness>>> {
    let listed = guarded::list(client, None).await;
    let listed = listed.map_err(|error| unread("list guardedreleases.kubemoor.dev", &error))?;
    let Some(listed) = listed else { return Ok(None) };
    let (pulses, mut states) = (LeaseCache::new(client.clone()), Vec::new());
    for guarded in listed {
        if let Some(release) = guarded.release() {
            let health = pulses.reported(guarded.status.unwrap_or_default()).await;
            let reason = health.reason.unwrap_or_default();
            states.push(ReleaseReadiness { release, reason, edits: health.edits });
        }
    }
    Ok(Some(states))
}

/// The kinds that the records of releases declare.
async fn declared_kinds(connection: &ClusterConnection, driver: RecordDriver) -> CheckInput<DeclaredKinds> {
    let right = match driver {
        RecordDriver::Secret => "get and list secrets in all namespaces",
        RecordDriver::Configmap => "get and list configmaps in all namespaces",
    };
    let problem = |error: InspectError| uninspected(right, &error);
    let reader = ClusterReader::new(connection.clone(), driver, &Labels::new()).await.map_err(problem)?;
    let ids = reader.list(None).await.map_err(problem)?;
    let (mut index, mut unread) = (Index::default(), 0);
    for read in reader.all(&ids).await {
        match read {
            Ok(release) => index.set(Arc::unwrap_or_clone(release)),
            Err(_) => unread += 1,
        }
    }
    let resources = index.resources().into_iter().map(Into::into).collect();
    Ok(DeclaredKinds { resources, releases: ids.len() - unread, unread })
}

/// Reads a row of the guard's ledger and its metrics through the API server: warnings about missing rows, and one text
/// of metrics per pod.
async fn guard_answers(
    connection: &ClusterConnection,
    place: &LeaseReference,
    (lease, access): (&CheckInput<Option<LeaderInfo>>, ClusterAccess),
) -> (CheckInput<Vec<String>>, CheckInput<Vec<String>>) {
    let own = "a guard authenticates your own token or certificate and ignores impersonation: remove --as";
    let obstacle = match lease {
        Err(problem) => Some(problem.clone()),
        Ok(None) => Some(Problem::Unknown("no guard runs".to_owned())),
        Ok(Some(_)) => access.user.as_ref().map(|_| Problem::Unknown(own.to_owned())),
    };
    if let Some(problem) = obstacle {
        return (Err(problem.clone()), Err(problem));
    }
    let problem = |error: InspectError| match error.is_forbidden() {
        true => Problem::Unknown(error.to_string()),
        false => Problem::Attention(error.to_string()),
    };
    let guard = ForwardedGuard::new(connection.clone(), place.clone(), None, access);
    let source = LedgerSource::Forwarded(Box::new(guard));
    let page = source.page(&Filter { limit: Some(1), ..Filter::default() }).await;
    let ledger = page.map(|page| page.missing).map_err(problem);
    let metrics = match (&ledger, &source) {
        (Ok(_), LedgerSource::Forwarded(guard)) => guard.metrics().await.map_err(problem),
        (Ok(_), _) => Ok(Vec::new()),
        (Err(problem), _) => Err(problem.clone()),
    };
    (ledger, metrics)
}

/// The rights that the guard's ServiceAccount lacks, as `VERB RESOURCE.GROUP`. A right of [`Scope::Releases`] that it
/// lacks cluster-wide must be granted in each namespace with guarded releases.
async fn missing_rights(
    client: &kube::Client,
    place: &LeaseReference,
    workload: &CheckInput<Option<Workload>>,
    releases: &CheckInput<Option<Vec<ReleaseReadiness>>>,
) -> CheckInput<Vec<String>> {
    let workload = workload.as_ref().ok().and_then(Option::as_ref);
    let (home, account) = (&place.namespace, workload.map_or(&place.name, |workload| &workload.account));
    let groups =
        ["system:serviceaccounts", &format!("system:serviceaccounts:{home}"), "system:authenticated"];
    let guard = Actor {
        user: format!("system:serviceaccount:{home}:{account}"),
        groups: groups.map(str::to_owned).to_vec(),
        ..Actor::default()
    };
    let may = async |right: &Right<'_>| {
        let may = access::is_user_allowed(client, &guard, right).await;
        may.map_err(|error| unread("create subjectaccessreviews.authorization.k8s.io", &error))
    };
    let guarded = releases.as_ref().ok().and_then(Option::as_ref).into_iter().flatten();
    let namespaces: BTreeSet<_> = guarded.map(|state| state.release.namespace.to_string()).collect();
    let mut missing = Vec::new();
    for (scope, verb, group, resource) in RIGHTS {
        let (namespace, name) = match scope {
            Scope::Cluster | Scope::Releases => (None, None),
            Scope::Lease => (Some(home.as_str()), Some(place.name.as_str())),
            Scope::Webhooks if workload.is_some_and(|workload| workload.registers) => (None, Some(NAME)),
            Scope::Webhooks => continue,
        };
        let right = Right { verb, group, resource, namespace, name };
        if may(&right).await? {
            continue;
        }
        let dot = if group.is_empty() { "" } else { "." };
        let what = format!("{verb} {resource}{dot}{group}");
        if !matches!(scope, Scope::Releases) {
            missing.push(what);
            continue;
        }
        for namespace in namespaces.iter().take(NAMESPACES) {
            if !may(&Right { namespace: Some(namespace), ..right }).await? {
                missing.push(format!("{what} in namespace {namespace}"));
            }
        }
    }
    Ok(missing)
}
