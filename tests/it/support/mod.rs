//! What the tests stand on: a real control plane, the real Helm SDK and the real `kubemoor` program.
//!
//! Entry points: [`Scene`] for a release, who changes it and who guards it; [`ControlPlane::get`] for the control plane
//! that most tests share, one namespace each; [`ControlPlane::start`] for one that a test has to itself and may stop,
//! freeze and restore, and which goes on to another test, emptied; [`Helm`], [`Chart`] and [`charts`]; [`Guard`],
//! [`Caller`] for plain requests, and [`eventually`]. Tests run as threads of one process, as `cargo test` does it: a
//! runner that gives every test a process of its own would start a control plane for each.
//!
//! Invariant: every process and folder made here is gone once the test process is, however that ended.

mod alertmanager;
mod balancer;
mod browser;
mod caller;
mod certified;
pub(crate) mod charts;
mod clock;
mod cluster;
mod cluster_page;
mod collector;
mod control_plane;
mod control_plane_faults;
mod custom_kind;
mod deploy;
mod disk;
mod document;
mod guard;
mod helm;
mod helm_line;
mod hook;
mod house;
mod identity;
mod installed;
mod kubeconfigs;
mod kubelet;
mod lag;
mod load;
mod member;
mod moor;
mod own_control_plane;
mod page;
mod postgres;
mod process;
mod prometheus;
mod receiver;
mod records;
mod review;
mod rewriter;
mod scene;
mod scene_waits;
mod service;
mod settings;
mod shell;
mod storage;
mod wait;
mod widgets;
mod wire;

pub(crate) use alertmanager::Alertmanager;
pub(crate) use balancer::Balancer;
pub(crate) use browser::{Browser, ENTER, Look};
pub(crate) use caller::{Answer, Caller, refusal};
pub(crate) use certified::UserCa;
pub(crate) use clock::Clock;
pub(crate) use cluster::{Cluster, POLICED, WARNING};
pub(crate) use cluster_page::{ClusterPage, PAGE_HOST};
pub(crate) use collector::{Collector, attribute};
pub(crate) use control_plane::ControlPlane;
pub(crate) use custom_kind::TestKind;
pub(crate) use disk::SmallDisk;
pub(crate) use document::{Block, Document, documents, names, root};
pub(crate) use guard::{Guard, SharedGuard, token_file};
pub(crate) use helm::{Chart, Helm, helm_python};
pub(crate) use helm_line::HelmLine;
pub(crate) use hook::serve_hook;
pub(crate) use house::House;
pub(crate) use identity::Identity;
pub(crate) use installed::{HOME, Installed, Pod};
pub(crate) use kubeconfigs::{changed, contexts, within};
pub(crate) use kubelet::Kubelet;
pub(crate) use lag::LaggingWatch;
pub(crate) use load::{Told, edit};
pub(crate) use member::{Member, RbacRule};
pub(crate) use moor::{Ran, items, moor, run};
pub(crate) use own_control_plane::{OwnControlPlane, unguarded};
pub(crate) use page::{Page, PageResponse, form, form_token, wait_for_change};
pub(crate) use postgres::Postgres;
pub(crate) use process::{Process, folder, free_port};
pub(crate) use prometheus::Prometheus;
pub(crate) use receiver::Receiver;
pub(crate) use records::{bomb, encoded, forged, holding, opened, record_name, sealed};
pub(crate) use review::{Reply, Review, data_review, reply};
pub(crate) use rewriter::Rewriter;
pub(crate) use scene::{DRIFT_POLICIES, RELEASE, Scene, SceneBuilder, drift_policy};
pub(crate) use scene_waits::{wait_until_guarded, wait_until_recreated};
pub(crate) use service::{ROUTING_KEY, SECRET, Service, ServiceFault, ServiceKind};
pub(crate) use settings::ClientCertificate;
pub(crate) use shell::{Shell, Statement, simple_commands, statements};
pub(crate) use storage::StorageNamespace;
pub(crate) use wait::{SOON, budget, eventually, poll, soon};
pub(crate) use widgets::{add_widgets, define_widgets};
pub(crate) use wire::Wire;
