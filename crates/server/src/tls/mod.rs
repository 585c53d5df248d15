//! TLS for clients: the server's certificate, from files, and the certificates that clients must show.
//!
//! The certificate can be replaced while the server runs. New connections use the new one; open connections keep what they
//! have.

mod files;

pub use files::{LoadedTls, TlsFileError, TlsFiles};

use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
};
use std::{
    sync::{Arc, PoisonError, RwLock},
    time::SystemTime,
};

/// TLS for the clients of a server. A clone is the same: a certificate that is replaced in one is replaced in all.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<LoadedTls>>);

impl Tls {
    /// Starts with what was loaded from files.
    pub fn new(loaded: LoadedTls) -> Tls {
        Tls(Arc::new(RwLock::new(loaded)))
    }

    /// Uses other certificates for new connections. Sessions that were begun with the old ones cannot be resumed, so that a
    /// client whose authority was removed is asked for its certificate again.
    pub fn replace(&self, loaded: LoadedTls) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = loaded;
    }

    /// When the server's certificate expires.
    pub fn expires_at(&self) -> SystemTime {
        self.0.read().unwrap_or_else(PoisonError::into_inner).expires_at
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).config.clone()
    }
}

/// The cryptography of all TLS connections. It is named everywhere, because a provider of the process could be set only once,
/// and by any library.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
