//! Whether connections are encrypted, and which certificates are trusted.
//!
//! The URL's `sslmode` decides. Without it, or with `disable`, nothing is encrypted. With `require` and `verify-full`
//! the server must present a certificate for its name, signed by an authority that the system trusts or that is in the
//! file named by `sslrootcert`. There is no mode that encrypts without checking the certificate, because it would
//! protect nothing.

use crate::StoreError;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// The URL in the form that the client library understands, and the TLS configuration, if connections are encrypted.
pub(super) fn choose(url: &str) -> Result<(String, Option<MakeRustlsConnect>), StoreError> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut mode, mut authorities) = ("disable", None);
    let mut kept = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = value,
            Some(("sslrootcert", value)) => authorities = Some(value),
            _ => kept.push(pair),
        }
    }
    let (known, tls) = match mode {
        "disable" => ("sslmode=disable", None),
        "require" | "verify-full" => ("sslmode=require", Some(encrypting(authorities)?)),
        _ => return Err(StoreError::Unusable("sslmode must be disable, require or verify-full".to_string())),
    };
    kept.push(known);
    Ok((format!("{base}?{}", kept.join("&")), tls))
}

fn encrypting(authorities: Option<&str>) -> Result<MakeRustlsConnect, StoreError> {
    let unusable = |error: &dyn std::error::Error| StoreError::Unusable(format!("TLS: {error}"));
    let roots = match authorities {
        Some(file) => in_file(file)?,
        None => of_system(),
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?;
    Ok(MakeRustlsConnect::new(config.with_root_certificates(roots).with_no_client_auth()))
}

fn in_file(file: &str) -> Result<RootCertStore, StoreError> {
    let unusable =
        |error: &dyn std::error::Error| StoreError::Unusable(format!("certificates in {file}: {error}"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unusable(&error))? {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    Ok(roots)
}

/// The authorities that the system trusts. Those of unsupported kinds are skipped.
fn of_system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}
