//! One cluster as one visitor sees it.
//!
//! Entry points: [`Cluster`], [`by`]. Invariant: everything is asked with the visitor's credentials; what fails here
//! fails for this cluster alone.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

use super::board::{self, ReleaseStates};
use super::history::Histories;
use super::ledger_reader::LedgerReader;
use kubemoor_cluster::client::access::{self, Right};
use kubemoor_cluster::client::connection::{self, Access, Connection};
use kubemoor_cluster::client::identity;
use kubemoor_cluster::client::lease::Place;
use kubemoor_cluster::client::resource::GROUP;
use kubemoor_cluster::mirror::kinds::Kinds;
use kubemoor_declare::model::ReleaseId;
use kubemoor_inspect::failure::{Failure, failed};
use kubemoor_inspect::guard::ForwardedGuard;
use kubemoor_inspect::ledger::Source;
use kubemoor_inspect::reading::{self, Reader};
use kubemoor_policy::resolver::Labels;
use kubemoor_runtime::config::RecordDriver;

/// How long it is believed which kinds a cluster serves.
const KINDS: Duration = Duration::from_secs(300);

/// How long a page waits for its part of one cluster.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most namespaces that are followed for a visitor who may not list all.
const NAMESPACES: usize = 16;

/// The most namespaces of exceptions that are asked about, and how many at one time.
const ASKED: usize = 50;
const AT_ONCE: usize = 8;

/// Plurals of Kubemoor's own kinds.
const GUARDED: &str = "guardedreleases";
const ALLOWANCES: &str = "driftallowances";

/// Which cluster, and as whom.
#[derive(Clone)]
pub struct Settings {
    /// What the visitor calls it.
    pub name: String,
    /// The visitor's credentials.
    pub access: Access,
    /// How Helm keeps its records there.
    pub driver: RecordDriver,
    /// Its labels, by which policies select clusters.
    pub labels: Labels,
    /// The guard that is asked for the ledger.
    pub guard: GuardAddress,
}

/// Where a guard is asked for the ledger.
#[derive(Clone)]
pub enum GuardAddress {
    /// At an address.
    Given {
        /// The address.
        server: http::Uri,
        /// The CA of its certificate; none for the system's.
        authority: Option<PathBuf>,
    },
    /// Through the API server, in a pod of the guard whose Lease this is.
    Forwarded(Place),
}

/// One cluster.
pub(super) struct Cluster {
    pub(super) name: String,
    /// What the ledger has told of late.
    pub(super) histories: Histories,
    settings: Settings,
    connection: OnceCell<Connection>,
    user: OnceCell<Option<String>>,
    ledger: OnceCell<LedgerReader>,
    kinds: tokio::sync::Mutex<Option<(Instant, Arc<Kinds>)>>,
    boards: Mutex<HashMap<Option<String>, Arc<ReleaseStates>>>,
}

/// What a visitor may order for a release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    /// To repair now, to pause and to resume.
    pub(super) steer: bool,
    /// The namespaces where they may make exceptions.
    pub(super) allow: BTreeSet<String>,
    /// The namespaces where they may end them.
    pub(super) revoke: BTreeSet<String>,
}

impl Cluster {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            name: settings.name.clone(),
            histories: Histories::default(),
            settings,
            connection: OnceCell::new(),
            user: OnceCell::new(),
            ledger: OnceCell::new(),
            kinds: tokio::sync::Mutex::default(),
            boards: Mutex::default(),
        }
    }

    /// The connection; nobody was talked to yet.
    pub(super) async fn connection(&self) -> Result<&Connection, Failure> {
        let connect = || connection::connect_by(&self.settings.access);
        Ok(self.connection.get_or_try_init(connect).await?)
    }

    /// Asks the API server who the visitor is.
    pub(super) async fn ask_user(&self) -> Result<Option<String>, Failure> {
        let connection = self.connection().await?;
        let user = identity::own_name(&connection.client, connection.claimed.clone()).await;
        user.map_err(|error| failed(connection, "ask who you are", error))
    }

    /// Who the visitor is to the API server; none where it cannot say.
    pub(super) async fn user(&self) -> Result<Option<&str>, Failure> {
        Ok(self.user.get_or_try_init(|| self.ask_user()).await?.as_deref())
    }

    /// Reads the cluster as it is now.
    pub(super) async fn reader(&self) -> Result<Reader, Failure> {
        let connection = self.connection().await?.clone();
        let kinds = self.kinds(&connection).await?;
        let Settings { driver, labels, .. } = &self.settings;
        Ok(Reader::of_kinds(connection, kinds, *driver, labels).await)
    }

    /// The ledger, as its guard shows it to the visitor. Nobody is asked yet.
    pub(super) async fn ledger(&self) -> Result<LedgerReader, Failure> {
        let Settings { access, guard, .. } = &self.settings;
        let open = || async {
            let source = match guard {
                GuardAddress::Given { server, authority } => {
                    Source::guard(server, authority.as_deref(), access).await?
                }
                GuardAddress::Forwarded(place) => {
                    let connection = self.connection().await?.clone();
                    let guard = ForwardedGuard::new(connection, place.clone(), None, access.clone());
                    Source::Forwarded(Box::new(guard))
                }
            };
            let own = &self.connection().await?.namespace;
            Ok::<_, Failure>(LedgerReader::of_guard(Arc::new(source), own))
        };
        Ok(self.ledger.get_or_try_init(open).await?.clone())
    }

    /// How the releases stand: of all namespaces, or of one where the visitor may not list them all.
    pub(super) async fn board(&self, namespace: Option<&str>) -> Result<Arc<ReleaseStates>, Failure> {
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

    /// Begins to follow all namespaces, so that the first page finds something.
    pub(super) async fn begin(&self) {
        if let Ok(connection) = self.connection().await {
            drop(self.follow(connection, None));
        }
    }

    /// The boards that are followed.
    pub(super) fn boards(&self) -> Vec<Arc<ReleaseStates>> {
        self.boards.lock().values().cloned().collect()
    }

    /// What the visitor may order for a release with objects in these namespaces; nothing where that cannot be asked.
    pub(super) async fn rights(&self, release: &ReleaseId, namespaces: &BTreeSet<String>) -> Rights {
        let Ok(connection) = self.connection().await else { return Rights::default() };
        let (steer, allow, revoke) = tokio::join!(
            may(connection, "patch", GUARDED, Some(&release.namespace)),
            permitted(connection, "create", namespaces.clone()),
            permitted(connection, "delete", namespaces.clone()),
        );
        Rights { steer, allow, revoke }
    }

    /// Of these namespaces those where the visitor may end exceptions; of very many only of the first.
    pub(super) async fn ends(&self, namespaces: BTreeSet<String>) -> BTreeSet<String> {
        let Ok(connection) = self.connection().await else { return BTreeSet::new() };
        permitted(connection, "delete", namespaces).await
    }

    async fn kinds(&self, connection: &Connection) -> Result<Arc<Kinds>, Failure> {
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

    fn follow(&self, connection: &Connection, namespace: Option<&str>) -> Arc<ReleaseStates> {
        let mut boards = self.boards.lock();
        let key = namespace.map(str::to_owned);
        if let Some(board) = boards.get(&key) {
            return Arc::clone(board);
        }
        if boards.len() > NAMESPACES {
            boards.retain(|namespace, _| namespace.is_none());
        }
        let Settings { driver, labels, .. } = &self.settings;
        let scope = board::Scope { namespace: key.clone(), driver: *driver, labels: labels.clone() };
        let board = Arc::new(ReleaseStates::follow(connection.clone(), scope));
        boards.insert(key, Arc::clone(&board));
        board
    }
}

/// By when a cluster has to answer whose part of a page is asked for now.
pub(super) fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

/// What one cluster answers by then. One that hangs takes none of the others along.
pub(super) fn by<T>(
    deadline: Instant,
    answer: impl Future<Output = Result<T, Failure>> + Send,
) -> impl Future<Output = Result<T, Failure>> + Send {
    let late = |_| Failure::Named(format!("it did not answer within {} s", PATIENCE.as_secs()));
    // On the heap: a page of many such answers would not fit onto the stack of a thread.
    let answer = timeout_at(deadline, Box::pin(answer));
    async move { answer.await.map_err(late).flatten() }
}

/// Of these namespaces those where the visitor may do this to exceptions; of very many only of the first.
async fn permitted(connection: &Connection, verb: &str, namespaces: BTreeSet<String>) -> BTreeSet<String> {
    if namespaces.is_empty() || may(connection, verb, ALLOWANCES, None).await {
        return namespaces;
    }
    let asked = namespaces.into_iter().take(ASKED).map(|namespace| async move {
        may(connection, verb, ALLOWANCES, Some(&namespace)).await.then_some(namespace)
    });
    stream::iter(asked).buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await
}

/// Whether the visitor may do this to our own kinds; not where that cannot be asked.
async fn may(connection: &Connection, verb: &str, resource: &str, namespace: Option<&str>) -> bool {
    let right = Right { verb, group: GROUP, resource, namespace, name: None };
    access::may_self(&connection.client, &right).await.unwrap_or(false)
}
