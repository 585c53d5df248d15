//! https, with rustls.

use crate::error::{Error, Result};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
};
use std::{fmt, sync::Arc};

/// Whom a client trusts, and who it says that it is.
#[derive(Default)]
pub(crate) struct Settings {
    /// Certificates of authorities. Empty: those of the system.
    pub(crate) roots: Vec<u8>,
    /// The certificate of the client with its chain, and its key.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Settings {
    /// Without https, the system's certificates are not read, because that takes milliseconds.
    pub(crate) fn config(self, https: bool) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        if !self.roots.is_empty() {
            for certificate in certificates(&self.roots, "the root certificates")? {
                roots.add(certificate).map_err(|error| invalid("the root certificates", error))?;
            }
        } else if https {
            let system = rustls_native_certs::load_native_certs();
            let (usable, _unusable) = roots.add_parsable_certificates(system.certs);
            if usable == 0 {
                let why = system.errors.first().map_or("there are none".to_owned(), ToString::to_string);
                return Err(invalid("the system's root certificates", why));
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid("TLS", error))?
            .with_root_certificates(roots);
        let Some((chain, key)) = self.identity else { return Ok(config.with_no_client_auth()) };
        let chain = certificates(&chain, "the client certificate")?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| invalid("the client's key", error))?;
        config.with_client_auth_cert(chain, key).map_err(|error| invalid("the client certificate", error))
    }
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let certificates: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(invalid(what, "there are none in PEM")),
        Err(error) => Err(invalid(what, error)),
    }
}

fn invalid(what: &str, why: impl fmt::Display) -> Error {
    Error::invalid(format!("{what}: {why}"))
}
