//! A visitor and the clusters they see, each read with the visitor's own credentials. A failing cluster does not affect
//! the others.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Extension;
use axum::response::sse::{Event, KeepAlive};
use axum::response::{Response, Sse};
use futures::future::{join_all, ready, select_all};
use futures::{FutureExt, Stream, StreamExt, stream};
use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, sleep, timeout_at};

use super::access_control::is_same;
use super::fleet::SharedLedger;
use super::html::{self, PageQuery};
use super::ledger::VisitorLedger;
use super::overview::{HistoryCache, histories};
use super::release_watch::{BoardScope, ChangeFeed, Changes, ReleaseStates, changes, notify_change};
use kubemoor_cluster::client::access::{self, Right};
use kubemoor_cluster::client::connection::{self, ClusterAccess, ClusterConnection};
use kubemoor_cluster::client::guarded;
use kubemoor_cluster::client::resource::GROUP;
use kubemoor_cluster::mirror::kinds::ServedKinds;
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::failure::{InspectError, failed};
use kubemoor_inspect::guard::ForwardedGuard;
use kubemoor_inspect::ledger::LedgerSource;
use kubemoor_inspect::reading::{self, ClusterReader};
use kubemoor_ledger::store::Store;
use kubemoor_policy::guarded::LeaseReference;
use kubemoor_policy::resolver::Labels;
use kubemoor_policy::signing::{SigningKey, hex};
use kubemoor_runtime::config::RecordDriver;

/// Purposes of [`SigningKey::mark`].
const TOKEN: &str = "token of a form";
const NUMBER: &str = "number of a form";

/// Responses to one visitor at one time: as many as a browser has connections to one server. This bounds the memory for
/// a visitor who does not read them.
const ANSWERS: usize = 6;

/// The open streams of one visitor: each open page has one.
const STREAMS: usize = 32;

/// How a visitor authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoginMethod {
    /// They run the command.
    Owner,
    /// A proxy sends their token with each request.
    Proxy,
    /// They have logged in, and can log out.
    Login,
}

pub(super) struct Visitor {
    pub(super) clusters: Vec<Arc<VisitedCluster>>,
    /// The database that is shown instead of clusters.
    pub(super) shared: Option<SharedLedger>,
    pub(super) entry: LoginMethod,
    /// The user name that the cluster reports, if known.
    pub(super) user: Option<String>,
    /// The key for their form tokens.
    forms: SigningKey,
    written: AtomicU64,
    confirmed: Mutex<Instant>,
    /// Limits on their responses and open streams.
    pub(super) answers: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    /// Notifies open pages that the visitor's login or token has ended.
    end: Changes,
}

impl Visitor {
    /// `forms` is the visitor's own key for form tokens.
    pub(super) fn new(
        clusters: Vec<VisitedCluster>,
        entry: LoginMethod,
        user: Option<String>,
        forms: SigningKey,
    ) -> Self {
        let clusters = clusters.into_iter().map(Arc::new).collect();
        let (written, confirmed) = (AtomicU64::new(0), Mutex::new(Instant::now()));
        let (answers, streams) = (Arc::new(Semaphore::new(ANSWERS)), Arc::new(Semaphore::new(STREAMS)));
        Self {
            clusters,
            shared: None,
            entry,
            user,
            forms,
            written,
            confirmed,
            answers,
            streams,
            end: changes(),
        }
    }

    /// The owner, for a page that shows a database instead of clusters.
    pub(super) fn of_database(store: Store, forms: SigningKey) -> Self {
        Self {
            shared: Some(SharedLedger::new(store)),
            ..Self::new(Vec::new(), LoginMethod::Owner, None, forms)
        }
    }

    /// Feeds of the end of the login or token, and of the changes of the requested release, or of all releases.
    pub(super) async fn changes(&self, asked: &PageQuery) -> Vec<ChangeFeed> {
        // This may be the first request, so start the watches. Those that fail to start notify of nothing.
        let begun = self.asked(asked).map(|cluster| cluster.board(asked.get("namespace")));
        drop(join_all(begun).await);
        let boards = self.asked(asked).flat_map(|cluster| cluster.boards());
        let boards = boards.map(|board| board.changes().subscribe());
        let others = std::iter::once(&self.end).chain(self.shared.iter().map(|shared| &shared.changes));
        let all = others.map(Changes::subscribe).chain(boards);
        all.map(|changes| ChangeFeed { changes, release: asked.release() }).collect()
    }

    /// Notifies open pages that the login or token has ended.
    pub(super) fn notify_logout(&self) {
        notify_change(&self.end, None);
    }

    pub(super) async fn ledger(&self, asked: &PageQuery) -> Result<VisitorLedger, InspectError> {
        match &self.shared {
            Some(shared) => Ok(shared.ledger.clone()),
            None => self.cluster(asked)?.ledger().await,
        }
    }

    /// Whether the API server confirmed who they are within `time`, and has not rejected their credentials since then.
    pub(super) fn is_confirmed_within(&self, time: Duration) -> bool {
        let mut boards = self.clusters.iter().flat_map(|cluster| cluster.boards());
        self.confirmed.lock().elapsed() < time && !boards.any(|board| board.is_unauthorized())
    }

    pub(super) fn confirm(&self) {
        *self.confirmed.lock() = Instant::now();
    }

    /// A new form token. It differs on each page: pages are compressed, and the compressed lengths could reveal a text
    /// that is the same on all of them.
    pub(super) fn form_token(&self) -> String {
        let number = self.written.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        let number = hex(&self.forms.mark(NUMBER, &[&number]));
        let mark = hex(&self.forms.mark(TOKEN, &[number.as_bytes()]));
        format!("{number}.{mark}")
    }

    pub(super) fn is_form_token(&self, token: &str) -> bool {
        let Some((number, mark)) = token.split_once('.') else { return false };
        is_same(mark, &hex(&self.forms.mark(TOKEN, &[number.as_bytes()])))
    }

    /// The requested cluster; the only one if none is named.
    pub(super) fn cluster(&self, asked: &PageQuery) -> Result<&Arc<VisitedCluster>, InspectError> {
        let named = asked.get("cluster");
        let found = match (named, self.clusters.as_slice()) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(name), clusters) => clusters.iter().find(|cluster| cluster.name == name),
        };
        found.ok_or_else(|| {
            InspectError::InvalidInput("this address names no cluster of this page".to_owned())
        })
    }

    /// The result of `read` for each requested cluster. A cluster that hangs does not delay the others.
    pub(super) async fn each<'v, T, R>(
        &'v self,
        asked: &'v PageQuery,
        read: impl Fn(&'v Arc<VisitedCluster>) -> R,
    ) -> Vec<(&'v Arc<VisitedCluster>, Result<T, InspectError>)>
    where
        R: Future<Output = Result<T, InspectError>> + Send,
    {
        let reads = self.asked(asked).map(|cluster| (cluster, with_deadline(deadline(), read(cluster))));
        join_all(reads.map(|(cluster, read)| async move { (cluster, read.await) })).await
    }

    /// The requested cluster, or all.
    pub(super) fn asked<'v>(&'v self, asked: &'v PageQuery) -> impl Iterator<Item = &'v Arc<VisitedCluster>> {
        let named = asked.get("cluster");
        self.clusters.iter().filter(move |cluster| named.is_none_or(|name| name == cluster.name))
    }

    /// Whether there are several clusters, so that each has to be named.
    pub(super) fn has_several(&self) -> bool {
        self.clusters.len() > 1
    }
}

/// How long the kinds that a cluster serves are cached.
const KINDS: Duration = Duration::from_secs(300);

/// How long a page waits for one cluster.
const CLUSTER_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of namespaces that are watched for a visitor who may not list all.
const NAMESPACES: usize = 16;

/// Maximum number of namespaces for which rights on exceptions are checked, and how many at one time.
const ASKED_NAMESPACES: usize = 50;
const AT_ONCE: usize = 8;

const ALLOWANCES: &str = "driftallowances";

/// A cluster and the credentials for it.
#[derive(Clone)]
pub struct PageCluster {
    pub name: String,
    pub access: ClusterAccess,
    /// The storage driver of Helm in this cluster.
    pub driver: RecordDriver,
    /// The labels of the cluster, which policies select by.
    pub labels: Labels,
    pub guard: GuardAddress,
}

#[derive(Clone)]
pub enum GuardAddress {
    Given {
        server: http::Uri,
        /// The CA of its certificate; `None` for the system's trust store.
        authority: Option<PathBuf>,
    },
    /// Through the API server, to a pod of the guard that holds this Lease.
    Forwarded(LeaseReference),
}

pub(super) struct VisitedCluster {
    pub(super) name: String,
    /// Recent results from the ledger.
    pub(super) histories: HistoryCache,
    settings: PageCluster,
    connection: OnceCell<ClusterConnection>,
    user: OnceCell<Option<String>>,
    ledger: OnceCell<VisitorLedger>,
    kinds: tokio::sync::Mutex<Option<(Instant, Arc<ServedKinds>)>>,
    boards: Mutex<HashMap<Option<String>, Arc<ReleaseStates>>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OrderRights {
    /// May repair now, pause and resume.
    pub(super) can_reconcile: bool,
    /// The namespaces where they may create exceptions.
    pub(super) allow: BTreeSet<String>,
    /// The namespaces where they may delete exceptions.
    pub(super) revoke: BTreeSet<String>,
}

impl VisitedCluster {
    pub(super) fn new(settings: PageCluster) -> Self {
        Self {
            name: settings.name.clone(),
            histories: histories(),
            settings,
            connection: OnceCell::new(),
            user: OnceCell::new(),
            ledger: OnceCell::new(),
            kinds: tokio::sync::Mutex::default(),
            boards: Mutex::default(),
        }
    }

    /// The connection; creating it sends no request.
    pub(super) async fn connection(&self) -> Result<&ClusterConnection, InspectError> {
        let connect = || connection::connect_by(&self.settings.access);
        Ok(self.connection.get_or_try_init(connect).await?)
    }

    pub(super) async fn ask_user(&self) -> Result<Option<String>, InspectError> {
        let connection = self.connection().await?;
        let user = access::own_name(&connection.client, connection.claimed.clone()).await;
        user.map_err(|error| failed(connection, "ask who you are", error))
    }

    /// The visitor's user name according to the API server; `None` if the server cannot tell.
    pub(super) async fn user(&self) -> Result<Option<&str>, InspectError> {
        Ok(self.user.get_or_try_init(|| self.ask_user()).await?.as_deref())
    }

    pub(super) async fn reader(&self) -> Result<ClusterReader, InspectError> {
        let connection = self.connection().await?.clone();
        let kinds = self.kinds(&connection).await?;
        let PageCluster { driver, labels, .. } = &self.settings;
        Ok(ClusterReader::of_kinds(connection, kinds, *driver, labels).await)
    }

    /// The ledger, as the guard shows it to the visitor. Sends no request.
    pub(super) async fn ledger(&self) -> Result<VisitorLedger, InspectError> {
        let PageCluster { access, guard, .. } = &self.settings;
        let open = || async {
            let source = match guard {
                GuardAddress::Given { server, authority } => {
                    LedgerSource::guard(server, authority.as_deref(), access).await?
                }
                GuardAddress::Forwarded(place) => {
                    let connection = self.connection().await?.clone();
                    let guard = ForwardedGuard::new(connection, place.clone(), None, access.clone());
                    LedgerSource::Forwarded(Box::new(guard))
                }
            };
            let own = Some(self.connection().await?.namespace.clone());
            Ok::<_, InspectError>(VisitorLedger { source: Arc::new(source), own })
        };
        Ok(self.ledger.get_or_try_init(open).await?.clone())
    }

    /// The states of the releases: of all namespaces, or of one if the visitor may not list all.
    pub(super) async fn board(&self, namespace: Option<&str>) -> Result<Arc<ReleaseStates>, InspectError> {
        let connection = self.connection().await?;
        let all = self.follow(connection, None);
        all.ready().await;
        if !all.is_forbidden() {
            return Ok(all);
        }
        let namespace = namespace.unwrap_or(&connection.namespace);
        let one = self.follow(connection, Some(namespace));
        one.ready().await;
        Ok(one)
    }

    pub(super) fn boards(&self) -> Vec<Arc<ReleaseStates>> {
        self.boards.lock().values().cloned().collect()
    }

    /// What the visitor may do to a release with objects in these namespaces; nothing if the check fails.
    pub(super) async fn rights(&self, release: &ReleaseId, namespaces: &BTreeSet<String>) -> OrderRights {
        let Ok(connection) = self.connection().await else { return OrderRights::default() };
        let (steer, allow, revoke) = tokio::join!(
            is_permitted(connection, "patch", guarded::PLURAL, Some(&release.namespace)),
            permitted(connection, "create", namespaces.clone()),
            permitted(connection, "delete", namespaces.clone()),
        );
        OrderRights { can_reconcile: steer, allow, revoke }
    }

    /// Filters the namespaces where the visitor may delete exceptions; checks only the first of many.
    pub(super) async fn ends(&self, namespaces: BTreeSet<String>) -> BTreeSet<String> {
        let Ok(connection) = self.connection().await else { return BTreeSet::new() };
        permitted(connection, "delete", namespaces).await
    }

    async fn kinds(&self, connection: &ClusterConnection) -> Result<Arc<ServedKinds>, InspectError> {
        let mut known = self.kinds.lock().await;
        if let Some((since, kinds)) = &*known
            && since.elapsed() < KINDS
        {
            return Ok(Arc::clone(kinds));
        }
        let kinds = reading::kinds(connection).await?;
        *known = Some((Instant::now(), Arc::clone(&kinds)));
        Ok(kinds)
    }

    fn follow(&self, connection: &ClusterConnection, namespace: Option<&str>) -> Arc<ReleaseStates> {
        let mut boards = self.boards.lock();
        let key = namespace.map(str::to_owned);
        if let Some(board) = boards.get(&key).filter(|board| board.record_view()) {
            return Arc::clone(board);
        }
        if boards.len() > NAMESPACES {
            boards.retain(|namespace, _| namespace.is_none());
        }
        let PageCluster { driver, labels, .. } = &self.settings;
        let scope = BoardScope { namespace: key.clone(), driver: *driver, labels: labels.clone() };
        let board = Arc::new(ReleaseStates::follow(connection.clone(), scope));
        boards.insert(key, Arc::clone(&board));
        board
    }
}

/// The time by which a cluster has to answer for its part of a page.
pub(super) fn deadline() -> Instant {
    Instant::now() + CLUSTER_PATIENCE
}

/// Limits `answer` to the deadline, so that a cluster that hangs does not delay the others.
pub(super) fn with_deadline<T>(
    deadline: Instant,
    answer: impl Future<Output = Result<T, InspectError>> + Send,
) -> impl Future<Output = Result<T, InspectError>> + Send {
    let late =
        |_| InspectError::InvalidInput(format!("it did not answer within {} s", CLUSTER_PATIENCE.as_secs()));
    // Boxed: many such futures in one page would overflow the thread's stack.
    let answer = timeout_at(deadline, Box::pin(answer));
    async move { answer.await.map_err(late).flatten() }
}

/// Filters the namespaces where the visitor may use `verb` on exceptions; checks only the first of many.
async fn permitted(
    connection: &ClusterConnection,
    verb: &str,
    namespaces: BTreeSet<String>,
) -> BTreeSet<String> {
    if namespaces.is_empty() || is_permitted(connection, verb, ALLOWANCES, None).await {
        return namespaces;
    }
    let asked = namespaces.into_iter().take(ASKED_NAMESPACES).map(|namespace| async move {
        is_permitted(connection, verb, ALLOWANCES, Some(&namespace)).await.then_some(namespace)
    });
    stream::iter(asked).buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await
}

/// Whether the visitor may use `verb` on one of Kubemoor's own kinds; `false` if the check fails.
async fn is_permitted(
    connection: &ClusterConnection,
    verb: &str,
    resource: &str,
    namespace: Option<&str>,
) -> bool {
    let right = Right { verb, group: GROUP, resource, namespace, name: None };
    access::is_self_allowed(&connection.client, &right).await.unwrap_or(false)
}

/// Changes within this time are reported together.
const GATHERING: Duration = Duration::from_secs(1);

/// How long one stream lasts. The browser then opens the next one, which is authenticated again.
const LIFE: Duration = Duration::from_secs(5 * 60);

/// How long the browser waits before it reconnects: normally, and after the watches of this stream have ended.
const PAUSE: Duration = Duration::from_secs(3);
const LONG_PAUSE: Duration = Duration::from_secs(60);

/// Notifies an open page that something it shows has changed, but not what: for the requested release, or for all. A
/// page whose visitor was evicted from the cache reconnects late, so that too many visitors do not keep evicting one
/// another.
pub(super) async fn change_stream(
    Extension(visitor): Extension<Arc<Visitor>>,
    asked: PageQuery,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Response> {
    let place = Arc::clone(&visitor.streams).try_acquire_owned();
    let place = place.map_err(|_| {
        html::refusal(StatusCode::TOO_MANY_REQUESTS, "Too many of your pages are open. Close some.")
    })?;
    let followed = visitor.changes(&asked).await;
    // Browsers keep the last retry delay that they received.
    let first = stream::once(ready(Event::default().retry(PAUSE)));
    let events = stream::unfold(Some(followed), |followed: Option<Vec<ChangeFeed>>| async move {
        let mut followed = followed?;
        let (is_followed, ..) = select_all(followed.iter_mut().map(|feed| feed.next().boxed())).await;
        if !is_followed {
            return Some((Event::default().retry(LONG_PAUSE), None));
        }
        sleep(GATHERING).await;
        followed.iter_mut().for_each(ChangeFeed::settle);
        Some((Event::default().event("change").data("change"), Some(followed)))
    });
    let events = first.chain(events).take_until(sleep(LIFE)).map(move |event| {
        let _place = &place;
        Ok(event)
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

#[cfg(test)]
mod tests;
