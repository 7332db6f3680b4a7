//! Who looks, and which clusters they see: each with the visitor's own credentials and no others. What fails in one
//! cluster fails for it alone.

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

use super::board::{BoardScope, ChangeFeed, Changes, ReleaseStates, changes, tell};
use super::door::is_same;
use super::fleet::SharedLedger;
use super::html::{self, PageQuery};
use super::ledger::VisitorLedger;
use super::overview::{HistoryCache, histories};
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

/// Purposes of marks.
const TOKEN: &str = "token of a form";
const NUMBER: &str = "number of a form";

/// The answers that one visitor is sent at one time, as many as a browser has connections to one server. Who reads none of
/// them takes up the memory of so many.
const ANSWERS: usize = 6;

/// The open streams of one visitor: each page that somebody looks at has one.
const STREAMS: usize = 32;

/// How a visitor shows who they are.
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
    /// How the cluster calls them, where that is known.
    pub(super) user: Option<String>,
    /// What the tokens of their forms are made by.
    forms: SigningKey,
    written: AtomicU64,
    confirmed: Mutex<Instant>,
    /// Room for their answers, and for their open streams.
    pub(super) answers: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    /// Tells open pages that the visitor's login or token has ended.
    end: Changes,
}

impl Visitor {
    /// Forms are told from others' by `forms`, which is the visitor's alone.
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

    /// The owner, who is shown a database instead of clusters.
    pub(super) fn of_database(store: Store, forms: SigningKey) -> Self {
        Self {
            shared: Some(SharedLedger::new(store)),
            ..Self::new(Vec::new(), LoginMethod::Owner, None, forms)
        }
    }

    /// The end of the login or token, and the changes of what is followed: of the release that is asked for, else of all.
    pub(super) async fn changes(&self, asked: &PageQuery) -> Vec<ChangeFeed> {
        // A page may be the first that somebody opens. What cannot be followed tells of nothing.
        let begun = self.asked(asked).map(|cluster| cluster.board(asked.get("namespace")));
        drop(join_all(begun).await);
        let boards = self.asked(asked).flat_map(|cluster| cluster.boards());
        let boards = boards.map(|board| board.changes().subscribe());
        let others = std::iter::once(&self.end).chain(self.shared.iter().map(|shared| &shared.changes));
        let all = others.map(Changes::subscribe).chain(boards);
        all.map(|changes| ChangeFeed { changes, release: asked.release() }).collect()
    }

    /// Tells open pages that the login or token has ended.
    pub(super) fn end(&self) {
        tell(&self.end, None);
    }

    pub(super) async fn ledger(&self, asked: &PageQuery) -> Result<VisitorLedger, InspectError> {
        match &self.shared {
            Some(shared) => Ok(shared.ledger.clone()),
            None => self.cluster(asked)?.ledger().await,
        }
    }

    /// Whether the API server has said within that time who they are, and nothing else since then.
    pub(super) fn is_confirmed_within(&self, time: Duration) -> bool {
        let mut boards = self.clusters.iter().flat_map(|cluster| cluster.boards());
        self.confirmed.lock().elapsed() < time && !boards.any(|board| board.is_unauthorized())
    }

    pub(super) fn confirm(&self) {
        *self.confirmed.lock() = Instant::now();
    }

    /// The token of a form of theirs. It is another one on each page: pages are compressed, and the length of what is
    /// the same on all of them could be found out.
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

    /// The cluster that is asked for; the only one, where none is named.
    pub(super) fn cluster(&self, asked: &PageQuery) -> Result<&Arc<VisitedCluster>, InspectError> {
        let named = asked.get("cluster");
        let found = match (named, self.clusters.as_slice()) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(name), clusters) => clusters.iter().find(|cluster| cluster.name == name),
        };
        found.ok_or_else(|| InspectError::Named("this address names no cluster of this page".to_owned()))
    }

    /// What `read` gives for each of the clusters that are asked for. One that hangs takes none of the others along.
    pub(super) async fn each<'v, T, R>(
        &'v self,
        asked: &'v PageQuery,
        read: impl Fn(&'v Arc<VisitedCluster>) -> R,
    ) -> Vec<(&'v Arc<VisitedCluster>, Result<T, InspectError>)>
    where
        R: Future<Output = Result<T, InspectError>> + Send,
    {
        let reads = self.asked(asked).map(|cluster| (cluster, by(deadline(), read(cluster))));
        join_all(reads.map(|(cluster, read)| async move { (cluster, read.await) })).await
    }

    /// The clusters that are asked for: one, or all.
    pub(super) fn asked<'v>(&'v self, asked: &'v PageQuery) -> impl Iterator<Item = &'v Arc<VisitedCluster>> {
        let named = asked.get("cluster");
        self.clusters.iter().filter(move |cluster| named.is_none_or(|name| name == cluster.name))
    }

    /// Whether there are several, so that each has to be named.
    pub(super) fn has_several(&self) -> bool {
        self.clusters.len() > 1
    }
}

/// How long it is believed which kinds a cluster serves.
const KINDS: Duration = Duration::from_secs(300);

/// How long a page waits for its part of one cluster.
const CLUSTER_PATIENCE: Duration = Duration::from_secs(10);

/// The most namespaces that are followed for a visitor who may not list all.
const NAMESPACES: usize = 16;

/// The most namespaces of exceptions that are asked about, and how many at one time.
const ASKED_NAMESPACES: usize = 50;
const AT_ONCE: usize = 8;

const ALLOWANCES: &str = "driftallowances";

/// Which cluster, and as whom.
#[derive(Clone)]
pub struct PageCluster {
    pub name: String,
    pub access: ClusterAccess,
    /// How Helm keeps its records there.
    pub driver: RecordDriver,
    /// Its labels, by which policies select clusters.
    pub labels: Labels,
    pub guard: GuardAddress,
}

#[derive(Clone)]
pub enum GuardAddress {
    Given {
        server: http::Uri,
        /// The CA of its certificate; none for the system's.
        authority: Option<PathBuf>,
    },
    /// Through the API server, in a pod of the guard whose Lease this is.
    Forwarded(LeaseReference),
}

pub(super) struct VisitedCluster {
    pub(super) name: String,
    /// What the ledger has told of late.
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
    /// To repair now, to pause and to resume.
    pub(super) steer: bool,
    /// The namespaces where they may make exceptions.
    pub(super) allow: BTreeSet<String>,
    /// The namespaces where they may end them.
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

    /// The connection; nobody was talked to yet.
    pub(super) async fn connection(&self) -> Result<&ClusterConnection, InspectError> {
        let connect = || connection::connect_by(&self.settings.access);
        Ok(self.connection.get_or_try_init(connect).await?)
    }

    pub(super) async fn ask_user(&self) -> Result<Option<String>, InspectError> {
        let connection = self.connection().await?;
        let user = access::own_name(&connection.client, connection.claimed.clone()).await;
        user.map_err(|error| failed(connection, "ask who you are", error))
    }

    /// Who the visitor is to the API server; none where it cannot say.
    pub(super) async fn user(&self) -> Result<Option<&str>, InspectError> {
        Ok(self.user.get_or_try_init(|| self.ask_user()).await?.as_deref())
    }

    pub(super) async fn reader(&self) -> Result<ClusterReader, InspectError> {
        let connection = self.connection().await?.clone();
        let kinds = self.kinds(&connection).await?;
        let PageCluster { driver, labels, .. } = &self.settings;
        Ok(ClusterReader::of_kinds(connection, kinds, *driver, labels).await)
    }

    /// The ledger, as its guard shows it to the visitor. Nobody is asked yet.
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

    /// How the releases stand: of all namespaces, or of one where the visitor may not list them all.
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

    /// What the visitor may order for a release with objects in these namespaces; nothing where that cannot be asked.
    pub(super) async fn rights(&self, release: &ReleaseId, namespaces: &BTreeSet<String>) -> OrderRights {
        let Ok(connection) = self.connection().await else { return OrderRights::default() };
        let (steer, allow, revoke) = tokio::join!(
            may(connection, "patch", guarded::PLURAL, Some(&release.namespace)),
            permitted(connection, "create", namespaces.clone()),
            permitted(connection, "delete", namespaces.clone()),
        );
        OrderRights { steer, allow, revoke }
    }

    /// Of these namespaces those where the visitor may end exceptions; of very many only of the first.
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
        if let Some(board) = boards.get(&key).filter(|board| board.look()) {
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

/// By when a cluster has to answer whose part of a page is asked for now.
pub(super) fn deadline() -> Instant {
    Instant::now() + CLUSTER_PATIENCE
}

/// What one cluster answers by then. One that hangs takes none of the others along.
pub(super) fn by<T>(
    deadline: Instant,
    answer: impl Future<Output = Result<T, InspectError>> + Send,
) -> impl Future<Output = Result<T, InspectError>> + Send {
    let late = |_| InspectError::Named(format!("it did not answer within {} s", CLUSTER_PATIENCE.as_secs()));
    // On the heap: a page of many such answers would not fit onto the stack of a thread.
    let answer = timeout_at(deadline, Box::pin(answer));
    async move { answer.await.map_err(late).flatten() }
}

/// Of these namespaces those where the visitor may do this to exceptions; of very many only of the first.
async fn permitted(
    connection: &ClusterConnection,
    verb: &str,
    namespaces: BTreeSet<String>,
) -> BTreeSet<String> {
    if namespaces.is_empty() || may(connection, verb, ALLOWANCES, None).await {
        return namespaces;
    }
    let asked = namespaces.into_iter().take(ASKED_NAMESPACES).map(|namespace| async move {
        may(connection, verb, ALLOWANCES, Some(&namespace)).await.then_some(namespace)
    });
    stream::iter(asked).buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await
}

/// Whether the visitor may do this to our own kinds; not where that cannot be asked.
async fn may(connection: &ClusterConnection, verb: &str, resource: &str, namespace: Option<&str>) -> bool {
    let right = Right { verb, group: GROUP, resource, namespace, name: None };
    access::may_self(&connection.client, &right).await.unwrap_or(false)
}

/// Changes that come together are told once.
const GATHERING: Duration = Duration::from_secs(1);

/// How long one stream lasts. The browser asks for the next, which has to be let in anew.
const LIFE: Duration = Duration::from_secs(5 * 60);

/// How long the browser waits before it asks for the next stream, and if what this one followed has ended.
const PAUSE: Duration = Duration::from_secs(3);
const LONG_PAUSE: Duration = Duration::from_secs(60);

/// Tells an open page that what it shows has changed, and not what: of the release that is named, else of all. A page
/// whose visitor was forgotten does not come back at once, so that visitors who are too many do not displace one another
/// without end.
pub(super) async fn change_stream(
    Extension(visitor): Extension<Arc<Visitor>>,
    asked: PageQuery,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Response> {
    let place = Arc::clone(&visitor.streams).try_acquire_owned();
    let place = place.map_err(|_| {
        html::refusal(StatusCode::TOO_MANY_REQUESTS, "Too many of your pages are open. Close some.")
    })?;
    let followed = visitor.changes(&asked).await;
    // A browser keeps the pause that it was told last.
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
