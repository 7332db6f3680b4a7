//! The program's two ports: the webhook's, and the one for health, metrics and the ledger.
//!
//! Entry points: `Ports::bind`, then `Serving`. Invariant: a port that is taken is found before anything is served.

use std::net::SocketAddr;

use anyhow::Context;
use axum::Router;
use tokio::net::TcpListener;

use super::calling::{Calling, Judging};
use super::parts::Parts;
use kubemoor_guard::admin;
use kubemoor_runtime::metrics::{ConnectionMetrics, Port};
use kubemoor_runtime::server::{self, Ending, Limits, Peer, TlsPort};
use kubemoor_runtime::tls::{Certificates, UserAuthority};

/// Both ports, which nobody serves yet.
pub(super) struct Ports {
    pub(super) webhook: TcpListener,
    pub(super) admin: TcpListener,
}

/// The settings with which both ports are served.
pub(super) struct Serving<'a> {
    pub(super) certificates: &'a Certificates,
    pub(super) connections: ConnectionMetrics,
    pub(super) ending: Ending,
}

impl Ports {
    pub(super) async fn bind(webhook: SocketAddr, admin: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { webhook: bind(webhook, "--listen").await?, admin: bind(admin, "--admin-listen").await? })
    }
}

impl Serving<'_> {
    /// Answers for health, metrics and the ledger.
    pub(super) fn admin(
        &self,
        listener: TcpListener,
        router: Router,
        users: &UserAuthority,
        parts: &mut Parts,
    ) -> anyhow::Result<()> {
        let (tls, metrics) =
            (self.certificates.server_config_asking(users)?, self.connections.of(Port::Admin));
        let admin = admin::serve(TlsPort { listener, tls, metrics }, router, self.ending.clone());
        parts.spawn("serving health and metrics", admin);
        Ok(())
    }

    /// Answers the API server.
    pub(super) fn webhook(
        &self,
        listener: TcpListener,
        calling: &Calling,
        judging: &Judging,
        parts: &mut Parts,
    ) -> anyhow::Result<()> {
        let (tls, metrics) = (calling.server_config(self.certificates)?, self.connections.clone());
        let judging = judging.clone();
        let answer = move |peer: Peer, request| judging.clone().answer(peer.address, request);
        let port = TlsPort { listener, tls, metrics };
        parts.spawn("the webhook", server::serve(port, answer, Limits::default(), self.ending.clone()));
        Ok(())
    }
}

async fn bind(address: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    let cannot = || format!("cannot listen on {address}; choose another address with {flag}");
    TcpListener::bind(address).await.with_context(cannot)
}
