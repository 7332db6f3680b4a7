//! The page of one release: its declared and live objects side by side, what the next Helm upgrade does to the fields
//! that drift, what happened, and the possible actions.
//!
//! The comparison is that of `kubemoor diff`, which masks values of Secrets, and the effect of an upgrade comes from
//! the conflicts of `kubemoor forecast`. A visitor who may not read the release's records sees only the guard's status.
//! A part that cannot be read is named and hides no other part.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use maud::{Markup, html};

use super::act;
use super::fleet;
use super::html::{
    self as write, LinkScope, PageFrame, PageLink, PageQuery, badge, fields_table, mark, notes, pagination,
    trouble,
};
use super::ledger::VisitorLedger;
use super::visitor::{OrderRights, VisitedCluster, Visitor};
use kubemoor_cluster::client::connection::ClusterConnection;
use kubemoor_cluster::client::{events, guarded};
use kubemoor_declare::model::{NamedObject, ObjectId, ReleaseId};
use kubemoor_helm::record::ApplyMethod;
use kubemoor_helm::release::Release;
use kubemoor_helm::values::Candidate;
use kubemoor_inspect::comparison::{self, ObjectDiff, ReleaseDiff};
use kubemoor_inspect::comparison::{FieldDiff, ObjectDiffState as ObjectState};
use kubemoor_inspect::exceptions;
use kubemoor_inspect::failure::{InspectError, failed};
use kubemoor_inspect::ledger::changes;
use kubemoor_inspect::reading::ClusterReader;
use kubemoor_inspect::releases::{self, ListedRelease};
use kubemoor_ledger::entry::LedgerEntry;
use kubemoor_ledger::query::Filter;
use kubemoor_policy::guarded::GuardedRelease;
use kubemoor_policy::resource::MAX_PATHS;

const AT_ONCE: usize = 8;

const MOMENTS: usize = 50;

const ROW_FIELDS: usize = 3;

pub(super) async fn page(Extension(visitor): Extension<Arc<Visitor>>, asked: PageQuery) -> Response {
    let now = Timestamp::now();
    let read = async {
        let release = &asked.release().ok_or_else(unnamed)?;
        match &visitor.shared {
            Some(shared) => fleet::release(shared, &asked, release, now).await,
            None => read(&visitor, &asked, release, now).await,
        }
    };
    match read.await {
        Ok(page) => {
            let name = asked.get("name").unwrap_or_default();
            PageFrame::live(&visitor, name, "releases").narrowed(&asked).around(&page)
        }
        Err(error) => write::failure(&visitor, "releases", &error),
    }
}

fn unnamed() -> InspectError {
    InspectError::InvalidInput("this address names no release".to_owned())
}

/// The frame of a release's page around `content`.
pub(super) fn around(
    release: &ReleaseId,
    cluster: Option<&str>,
    content: &Markup,
    timeline: &Timeline,
    now: Timestamp,
) -> Markup {
    let rows = LinkScope { cluster, namespace: Some(&release.namespace) }.link("ledger");
    let rows = rows.with("release", &release.name).with("since", "30d");
    html! {
        nav.trail aria-label="Way back" { a href=(PageLink::to("releases").text()) { "Releases" } }
        h1 { (release.name) }
        p.quiet { "in namespace " (release.namespace) @if let Some(cluster) = cluster { ", cluster " (cluster) } }
        (content)
        section {
            h2 { "What happened" }
            (timeline.shown(now))
            p { a href=(rows.text()) { "All rows of the ledger" } }
        }
    }
}

async fn read(
    visitor: &Visitor,
    asked: &PageQuery,
    release: &ReleaseId,
    now: Timestamp,
) -> Result<Markup, InspectError> {
    let cluster = visitor.cluster(asked)?;
    let reader = cluster.reader().await?;
    let connection = &reader.connection;
    let (guarded, compared, timeline) = tokio::join!(
        guarded::get(&connection.client, release),
        compare(&reader, release, now),
        Timeline::read(release, None, Some(connection), cluster.ledger()),
    );
    let guarded = match guarded.map_err(|error| failed(connection, "read the GuardedRelease", error)) {
        // A visitor who may not read the GuardedRelease sees nothing of the release.
        Err(error) if error.is_forbidden() => return Err(error),
        guarded => guarded,
    };
    let namespaces = namespaces(release, compared.as_ref().ok().map(|(declared, _)| &**declared));
    let ((exceptions, failures), rights) =
        tokio::join!(read_exceptions(connection, &namespaces, now), cluster.rights(release, &namespaces));
    let row = match &guarded {
        // If the records cannot be read, the comparison reports why.
        Ok(guarded) => row(&reader, release, guarded.as_ref()).await.ok().flatten(),
        // If the GuardedRelease cannot be read, it is unknown whether the release is guarded.
        Err(_) => None,
    };
    if row.is_none() && compared.is_err() {
        // Nothing is shown that the visitor may not read.
        return Err(compared.err().unwrap_or_else(unnamed));
    }
    let policies = reader.resolver.policy(release);
    let report = compared.as_ref().ok().map(|(_, report)| report);
    let own: Vec<_> = match &compared {
        Ok((release, _)) => {
            let is_own = |exception: &exceptions::ListedAllowance| {
                exception.state == exceptions::AllowanceState::Open
                    && release.objects.keys().any(|object| is_for(exception, object, &release.id))
            };
            exceptions.into_iter().filter(is_own).collect()
        }
        Err(_) => exceptions,
    };
    let content = html! {
        @if let Some(row) = &row {
            p.state { (badge(row.state(), row.ready.as_deref(), row.stale_since)) " " (row.message) }
        }
        @if let Err(error) = &guarded { (trouble(&error.to_string())) }
        (facts(row.as_ref(), report, &policies.matched().collect::<Vec<_>>()))
        @if let Some(row) = row.as_ref().filter(|row| row.guarded && rights.can_reconcile) { (actions(cluster, release, row)) }
        section {
            h2 { "Objects" }
            @match &compared {
                Ok((release, report)) => (objects(cluster, asked, release, report, &rights)),
                Err(error) => {
                    (trouble(&error.to_string()))
                    @if error.is_forbidden() {
                        p.quiet {
                            "The effect of the next upgrade and the chart values that set a field are shown only to \
                             users who may read the release's record."
                        }
                    }
                    (reported_objects(guarded.as_ref().ok().and_then(Option::as_ref)))
                }
            }
        }
        section {
            h2 { "Exceptions" }
            @for error in &failures { (trouble(&error.to_string())) }
            @if failures.is_empty() || !own.is_empty() {
                (act::exceptions_table(cluster, &own, &rights.revoke, now))
            }
        }
    };
    let name = visitor.has_several().then_some(cluster.name.as_str());
    Ok(around(release, name, &content, &timeline, now))
}

fn facts(row: Option<&ListedRelease>, report: Option<&ReleaseDiff>, policies: &[&str]) -> Markup {
    html! {
        dl.facts {
            @if let Some(ReleaseDiff { revision: Some(revision), status: Some(status), .. }) = report {
                div { dt { "Record" } dd { "revision " (revision) ", " (status) } }
            }
            @if let Some(ListedRelease { edits: Some(edits), drift: Some(drift), .. }) = row {
                div { dt { "Edits" } dd { (edits) } }
                div { dt { "Drift" } dd { (drift) } }
            }
            div { dt { "Policies" } dd { @if policies.is_empty() { "none" } @else { (policies.join(", ")) } } }
        }
        @if let Some(report) = report {
            @if let Some(invalid) = &report.invalid { (trouble(&format!(
                "The latest record is not accepted: {invalid}"
            ))) }
            (notes("objects", &report.unread_sources))
        }
    }
}

/// The possible actions; each links to a page that shows what it will do.
fn actions(cluster: &VisitedCluster, release: &ReleaseId, row: &ListedRelease) -> Markup {
    let link = |what: &str| {
        PageLink::to("act").with("do", what).with("cluster", &cluster.name).of_release(release).text()
    };
    html! {
        p.actions {
            a.button href=(link("reconcile")) { "Repair now" }
            @if row.reason.as_deref() == Some("Suspended") {
                a.button href=(link("resume")) { "Resume repairs" }
            } @else {
                a.button href=(link("suspend")) { "Pause repairs" }
            }
        }
    }
}

async fn compare(
    reader: &ClusterReader,
    release: &ReleaseId,
    now: Timestamp,
) -> Result<(Arc<Release>, ReleaseDiff), InspectError> {
    let release = reader.release(release).await?;
    let mut report = comparison::compare(reader, &release, false, now, &|| ()).await;
    comparison::add_chart_values(reader, &release, &mut report).await;
    Ok((release, report))
}

/// The release as the list shows it: its GuardedRelease, or the reason why it has none. `None` if it does not exist.
async fn row(
    reader: &ClusterReader,
    release: &ReleaseId,
    guarded: Option<&GuardedRelease>,
) -> Result<Option<ListedRelease>, InspectError> {
    if let Some(guarded) = guarded {
        let told = reader.pulses.reported(guarded.status.clone().unwrap_or_default()).await;
        return Ok(Some(ListedRelease::guarded(release.clone(), told)));
    }
    if reader.find(release).await?.is_none() {
        return Ok(None);
    }
    Ok(Some(ListedRelease::unguarded(release.clone(), releases::why_not(reader, release, true).await)))
}

/// The namespaces in which exceptions can apply to objects of a release.
fn namespaces(release: &ReleaseId, declared: Option<&Release>) -> BTreeSet<String> {
    let objects = declared.into_iter().flat_map(|declared| declared.objects.keys());
    let named = objects.filter_map(|object| object.namespace.as_deref().map(str::to_owned));
    std::iter::once(release.namespace.to_string()).chain(named).collect()
}

/// Whether an exception is for this object of a release.
fn is_for(exception: &exceptions::ListedAllowance, object: &ObjectId, release: &ReleaseId) -> bool {
    let named = &exception.object;
    let is_here = match &object.namespace {
        Some(namespace) => *namespace == exception.namespace,
        // An exception for a cluster-scoped object is in the release's namespace.
        None => named.namespace.is_none() && exception.namespace == release.namespace,
    };
    is_here && object.group == named.group && object.kind == named.kind && object.name == named.name
}

/// The exceptions in these namespaces, and why some cannot be read.
async fn read_exceptions(
    connection: &ClusterConnection,
    namespaces: &BTreeSet<String>,
    now: Timestamp,
) -> (Vec<exceptions::ListedAllowance>, Vec<InspectError>) {
    let read = namespaces
        .iter()
        .cloned()
        .map(|namespace| async move { exceptions::read(connection, Some(&namespace), None, now).await });
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for read in stream::iter(read).buffered(AT_ONCE).collect::<Vec<_>>().await {
        match read {
            Ok(read) => rows.extend(read),
            Err(error) => failures.push(error),
        }
    }
    (rows, failures)
}

pub(super) struct Timeline {
    moments: Vec<TimelineEntry>,
    notes: Vec<String>,
    /// Whether the ledger has older rows.
    is_cut: bool,
}

struct TimelineEntry {
    time: Timestamp,
    what: String,
    is_warning: bool,
    text: String,
}

impl Timeline {
    /// The ledger rows about a release (of one cluster, if the ledger has several), and the Kubernetes events of
    /// `events`.
    pub(super) async fn read(
        release: &ReleaseId,
        cluster: Option<&str>,
        events: Option<&ClusterConnection>,
        ledger: impl Future<Output = Result<VisitorLedger, InspectError>>,
    ) -> Self {
        let ReleaseId { namespace, name } = release;
        let mut timeline = Self { moments: Vec::new(), notes: Vec::new(), is_cut: false };
        if let Some(connection) = events {
            match events::list_object_events(&connection.client, namespace, guarded::KIND, name).await {
                Ok(events) => timeline.moments.extend(events.into_iter().filter_map(|event| {
                    let (time, text) = (events::last_seen(&event)?, event.message.unwrap_or_default());
                    let is_warning = event.type_.as_deref() == Some("Warning");
                    Some(TimelineEntry { time, what: event.reason.unwrap_or_default(), is_warning, text })
                })),
                Err(error) => timeline.notes.push(failed(connection, "list the events", error).to_string()),
            }
        }
        let filter = Filter {
            cluster: cluster.map(str::to_owned),
            namespace: Some(namespace.to_string()),
            release: Some(name.to_string()),
            ..Filter::default()
        };
        match async { ledger.await?.newest(&filter, MOMENTS).await }.await {
            Ok(rows) => {
                timeline.moments.extend(rows.items.iter().map(moment));
                timeline.notes.extend(rows.missing);
                timeline.is_cut = rows.next.is_some();
            }
            Err(error) => timeline.notes.push(error.to_string()),
        }
        timeline.moments.sort_by_key(|moment| std::cmp::Reverse(moment.time));
        timeline
    }

    pub(super) fn shown(&self, now: Timestamp) -> Markup {
        html! {
            (notes("timeline", &self.notes))
            @if self.moments.is_empty() { p.quiet { "Nothing is known." } } @else {
                ol.timeline {
                    @for moment in self.moments.iter().take(MOMENTS) {
                        li {
                            (write::time(moment.time, now))
                            span class=(if moment.is_warning { "badge bad" } else { "badge" }) { (moment.what) }
                            span { (moment.text) }
                        }
                    }
                }
                @if self.is_cut || self.moments.len() > MOMENTS {
                    p.quiet { "These are the newest " (self.moments.len().min(MOMENTS)) ": the ledger has older rows." }
                }
            }
        }
    }
}

fn moment(entry: &LedgerEntry) -> TimelineEntry {
    let mut parts = vec![entry.object.short()];
    parts.extend(changes(entry, ROW_FIELDS));
    parts.extend((!entry.detail.is_empty()).then(|| entry.detail.clone()));
    parts.extend((!entry.user.is_empty()).then(|| format!("by {}", entry.user)));
    let is_warning = matches!(entry.verdict.as_str(), "Deny" | "Failed" | "Error");
    TimelineEntry { time: entry.time, what: entry.verdict.clone(), is_warning, text: parts.join("; ") }
}

/// Maximum number of objects on one page, and of fields shown of each.
const OBJECTS: usize = 100;
const FIELDS: usize = 50;

const ALL_FIELDS: usize = 2000;

/// The query parameters that select one object: its name, and its namespace.
const OBJECT: &str = "object";
const IN: &str = "in";

/// Maximum number of conflicts that are listed for fields that the page does not show.
const NAMED: usize = 10;

/// The compared objects, those that are not in sync first: one page of them, or the requested one.
fn objects(
    cluster: &VisitedCluster,
    asked: &PageQuery,
    release: &Release,
    report: &ReleaseDiff,
    rights: &OrderRights,
) -> Markup {
    let whole = || PageLink::to_release(&cluster.name, &release.id);
    if let Some(object) = asked.get(OBJECT) {
        let is_meant =
            |it: &&ObjectDiff| named(&it.object) == object && it.object.namespace.as_deref() == asked.get(IN);
        return html! {
            @match report.objects.iter().find(is_meant) {
                Some(object) => (object_section(cluster, &release.id, object, rights, ALL_FIELDS)),
                None => p.quiet { code { (object) } " matches its release, or does not belong to it." },
            }
            p { a href=(whole().text()) { "All objects of the release" } }
        };
    }
    let (page, pages) = asked.page("page", report.objects.len(), OBJECTS);
    let turned = |page: usize| whole().with("page", &page.to_string()).text();
    html! {
        (next_upgrade(release, report))
        @for object in report.objects.iter().skip((page - 1) * OBJECTS).take(OBJECTS) {
            (object_section(cluster, &release.id, object, rights, FIELDS))
        }
        (pagination("Pages of objects", (page, pages), turned))
        (matching(release, report))
    }
}

/// The objects that match their release.
fn matching(release: &Release, report: &ReleaseDiff) -> Markup {
    let listed: BTreeSet<&ObjectId> = report.objects.iter().map(|it| &it.object).collect();
    let matching: Vec<_> = release.objects.keys().filter(|object| !listed.contains(&***object)).collect();
    html! {
        @if !matching.is_empty() {
            details #matching open[report.objects.is_empty()] {
                summary {
                    (matching.len())
                    @if matching.len() == 1 { " object matches its release" } @else { " objects match their release" }
                }
                ul.objects { @for object in matching.iter().take(OBJECTS) {
                    li { code { (object.kind) "/" (object.name) } (elsewhere(&release.id, object)) }
                } }
                @if matching.len() > OBJECTS { p.quiet { "The first " (OBJECTS) " are shown." } }
            }
        }
    }
}

/// The objects in the guard's status, for a visitor who may not read the release's records.
fn reported_objects(guarded: Option<&GuardedRelease>) -> Markup {
    let drifts = guarded.and_then(|it| it.status.as_ref()).map(|status| status.drifts.as_slice());
    let drifts = drifts.unwrap_or_default();
    html! {
        @if !drifts.is_empty() { p { "The guard's status names the first objects that do not match:" } }
        @for drift in drifts {
            article.object {
                h3 { code { (drift.object.kind) "/" (drift.object.name) } }
                p { span.badge.bad { (drift.r#type) } @if let Some(message) = &drift.message { " " (message) } }
                @if !drift.fields.is_empty() {
                    @let lines = html! {
                        @for field in &drift.fields {
                            tr {
                                th scope="row" { code { (field.path) } }
                                td { code.declared { (field.declared.as_deref().unwrap_or("absent")) } }
                                td { code.live { (field.live.as_deref().unwrap_or("absent")) } }
                            }
                        }
                    };
                    (fields_table(&format!("Fields of {}", drift.object.name), &["Field", "Declared", "Live"], &lines))
                }
            }
        }
    }
}

fn elsewhere(release: &ReleaseId, object: &ObjectId) -> Markup {
    match &object.namespace {
        Some(namespace) if *namespace != release.namespace => html! { span.quiet { " in " (namespace) } },
        Some(_) => html! {},
        None => html! { span.quiet { " in the whole cluster" } },
    }
}

fn object_section(
    cluster: &VisitedCluster,
    release: &ReleaseId,
    report: &ObjectDiff,
    rights: &OrderRights,
    most: usize,
) -> Markup {
    let (class, state) = state_words(report.state);
    let is_open = matches!(report.state, ObjectState::Drifted | ObjectState::Missing | ObjectState::InDoubt);
    html! {
        article.object {
            h3 { code { (report.object.kind) "/" (report.object.name) } (elsewhere(release, &report.object)) }
            p { (mark(class, state)) @if let Some(reason) = &report.reason { " " (reason) } }
            @if let Some(why) = &report.not_repaired { p.quiet { "Not repaired: " (why) } }
            @if report.state == ObjectState::Missing { p.quiet { "The next upgrade creates it." } }
            @if !report.fields.is_empty() { (fields(cluster, release, report, most)) }
            p.actions {
                @if !report.fields.is_empty() {
                    a href=(about("explain", cluster, release, report).text()) { "All chart values, and advice" (whose(report)) }
                }
                @if rights.allow.contains(exception_namespace(release, &report.object)) && is_open {
                    a href=(allow(cluster, release, report)) { "Make an exception" (whose(report)) }
                }
            }
        }
    }
}

/// For screen readers, which may read a link without its context.
fn whose(report: &ObjectDiff) -> Markup {
    html! { span.hidden { " for " (report.object.kind) "/" (report.object.name) } }
}

fn exception_namespace<'o>(release: &'o ReleaseId, object: &'o ObjectId) -> &'o str {
    object.namespace.as_deref().unwrap_or(&release.namespace)
}

fn about(page: &'static str, cluster: &VisitedCluster, release: &ReleaseId, report: &ObjectDiff) -> PageLink {
    PageLink::to(page)
        .with("cluster", &cluster.name)
        .with("namespace", exception_namespace(release, &report.object))
        .with("object", &named(&report.object))
}

fn allow(cluster: &VisitedCluster, release: &ReleaseId, report: &ObjectDiff) -> String {
    let link = about("allow", cluster, release, report);
    if report.state == ObjectState::Missing {
        return link.with("path", "delete").text();
    }
    let paths: BTreeSet<&str> = report.fields.iter().map(|field| field.path.as_str()).collect();
    let is_cut = paths.len() > MAX_PATHS;
    let link = link.set("drifting", is_cut.then(|| paths.len().to_string()).as_deref());
    paths.into_iter().take(MAX_PATHS).fold(link, |link, path| link.with("path", path)).text()
}

fn named(object: &ObjectId) -> String {
    let group = (!object.group.is_empty()).then(|| object.group.to_string());
    NamedObject { kind: object.kind.to_lowercase(), group, name: object.name.to_string() }.to_string()
}

fn fields(cluster: &VisitedCluster, release: &ReleaseId, report: &ObjectDiff, most: usize) -> Markup {
    let more = report.fields.len().saturating_sub(most);
    let ReleaseId { namespace, name } = release;
    let own = PageLink::to_release(&cluster.name, release).with(OBJECT, &named(&report.object));
    let own = own.set(IN, report.object.namespace.as_deref());
    html! {
        (fields_table(
            &format!("Fields of {}", report.object.name),
            &["Field", "Declared", "Live", "Owned by", "The next upgrade", "Chart value"],
            &html! { @for field in report.fields.iter().take(most) { (line(field)) } },
        ))
        @if more > 0 && most < ALL_FIELDS {
            p { a href=(own.text()) { "and " (more) " more fields" span.hidden { " of " (report.object.kind) "/" (report.object.name) } } }
        } @else if more > 0 {
            p.quiet { "and " (more) " more fields: " code { "kubemoor diff " (name) " -n " (namespace) } " shows all" }
        }
    }
}

fn line(field: &FieldDiff) -> Markup {
    let (at, [declared, live]) = (field.place(), field.values());
    let path = at.map_or(&field.path, |at| &at.path);
    html! {
        tr {
            th scope="row" {
                code { (path) }
                @if let Some(line) = at.and_then(|at| at.line) { span.quiet { "line " (line) } }
                @if field.in_doubt { span.quiet { "may differ" } }
            }
            td { code.declared { (declared) } }
            td { code.live { (live) } }
            td { (field.owners.join(", ")) }
            td.message {
                @if field.next_upgrade.is_failure() { strong { (field.next_upgrade) } } @else { (field.next_upgrade) }
            }
            td.message {
                // The chart values that probably set the field, with the evidence.
                @for Candidate { value, evidence, .. } in &field.chart_values {
                    @let evidence: Vec<_> = evidence.iter().map(ToString::to_string).collect();
                    div { "probably " code { (value) } span.quiet.below { (evidence.join(", ")) } }
                }
            }
        }
    }
}

fn state_words(state: ObjectState) -> (&'static str, &'static str) {
    match state {
        ObjectState::Drifted => ("bad", "Drifted"),
        ObjectState::Missing => ("bad", "Missing"),
        ObjectState::InDoubt => ("doubt", "In doubt"),
        ObjectState::Ownership => ("bad", "Matches, but the next helm upgrade may fail with a conflict"),
        ObjectState::Awaited => ("doubt", "Not there yet: a Helm operation is under way"),
        ObjectState::NotCreated => ("doubt", "Not created: the Helm operation failed"),
        ObjectState::Allowed => ("good", "Missing, as an exception allows"),
        ObjectState::AllowedToDiffer => ("good", "Differs, as an exception allows"),
        ObjectState::Foreign => ("doubt", "Owned by another release"),
        ObjectState::OptedOut => ("doubt", "Opted out by its manifest"),
        ObjectState::BeingDeleted => ("doubt", "Being deleted"),
        ObjectState::NotServed => ("doubt", "Not served"),
        ObjectState::Unread => ("doubt", "Not read"),
    }
}

/// How Helm applies the release, and whether its next upgrade would fail now.
fn next_upgrade(release: &Release, report: &ReleaseDiff) -> Markup {
    let method = match release.state.apply_method {
        ApplyMethod::ServerSide => "server-side",
        ApplyMethod::ClientSide => "client-side, by a three-way merge",
    };
    let failing: BTreeSet<(&ObjectId, String)> = report
        .conflicts
        .iter()
        .filter(|it| it.conflict.differs)
        .map(|it| (&it.object, it.conflict.path.to_string()))
        .collect();
    let has_fields = report.objects.iter().any(|object| !object.fields.is_empty());
    let is_shown = |(object, path): &&(&ObjectId, String)| {
        let fields = report.objects.iter().filter(|it| it.object == **object).flat_map(|it| &it.fields);
        let mut failing = fields.filter(|field| field.next_upgrade.is_failure());
        failing.any(|field| field.path.starts_with(&**path) || path.starts_with(&field.path))
    };
    let hidden: Vec<_> = failing.iter().filter(|it| !is_shown(it)).collect();
    let ReleaseId { namespace, name } = &release.id;
    html! {
        @if !report.objects.is_empty() || !failing.is_empty() {
            p #next-upgrade {
                "Helm applies this release " (method) ". "
                @if !failing.is_empty() {
                    "The next upgrade fails: " (failing.len())
                    @if failing.len() == 1 { " field conflicts. " } @else { " fields conflict. " }
                    "To list all conflicts: " code { "kubectl moor forecast " (name) " -n " (namespace) }
                } @else if has_fields {
                    "The fields below do not make the next upgrade fail."
                } @else {
                    "The next upgrade currently has no conflict."
                }
            }
            @if !hidden.is_empty() {
                ul { @for (object, path) in hidden.iter().take(NAMED) {
                    li { code { (object.kind) "/" (object.name) } " " code { (path) } }
                } }
            }
        }
        @for left in &report.left_behind { p.quiet { "Left behind by an upgrade: " (left.text()) } }
    }
}
