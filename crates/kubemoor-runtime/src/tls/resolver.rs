//! Gives every TLS handshake the current certificate.
//!
//! Entry point: `Resolver`. Invariant: there is always one certificate, whatever name a client asks for. Must
//! not read files.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::pair::Pair;

/// The certificate of the moment. The name that a client asks for is ignored:
/// there is one certificate, and the client judges whether it fits.
#[derive(Debug)]
pub(super) struct Resolver(ArcSwap<CertifiedKey>);

impl Resolver {
    pub(super) fn new(pair: Pair) -> Self {
        Self(ArcSwap::new(pair.key))
    }

    pub(super) fn current(&self) -> Arc<CertifiedKey> {
        self.0.load_full()
    }

    pub(super) fn set(&self, pair: Pair) {
        self.0.store(pair.key);
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}
