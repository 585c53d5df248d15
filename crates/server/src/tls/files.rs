//! Reads certificates and keys from PEM files, and says what is wrong with a file that cannot be used.

use super::provider;
use rustls::{
    Error as TlsError, InconsistentKeys, RootCertStore, ServerConfig,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{Error as PemError, PemObject},
    },
    server::WebPkiClientVerifier,
};
use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};
use x509_cert::{
    Certificate,
    der::{DateTime, Decode},
};

/// The largest file, in bytes. A file of authorities may have some hundred certificates.
const MAX_BYTES: u64 = 4 << 20;

/// The files of a server's TLS, all in the PEM format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, followed by those that lead from it to an authority.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The authorities of which every client must show a certificate. None if clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// What was loaded from files, for [`Tls`](super::Tls).
pub struct LoadedTls {
    pub(super) config: Arc<ServerConfig>,
    pub(super) expires_at: SystemTime,
}

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsFileError {
    /// The file cannot be read.
    #[error("{} cannot be read: {why}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        why: String,
    },
    /// The file is not PEM, or lacks what it is read for.
    #[error("{}: {why}", .file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The certificate has expired.
    #[error("{}: the certificate expired at {} (UTC)", .file.display(), Date(*.at))]
    Expired {
        /// The file.
        file: PathBuf,
        /// When it expired.
        at: SystemTime,
    },
    /// The certificate is for later, or the clock of this machine is wrong.
    #[error("{}: the certificate is valid only from {} (UTC) on", .file.display(), Date(*.from))]
    NotYetValid {
        /// The file.
        file: PathBuf,
        /// When its time begins.
        from: SystemTime,
    },
    /// The key belongs to another certificate.
    #[error("the key in {} is not that of the certificate in {}", .key.display(), .cert.display())]
    WrongKey {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        cert: PathBuf,
    },
}

impl TlsFiles {
    /// Reads the files. Fails unless all of them can be used at the time `now`: a certificate that every client would refuse is
    /// an error of the file.
    pub fn load(&self, now: SystemTime) -> Result<LoadedTls, TlsFileError> {
        let chain = certificates(&self.cert)?;
        let [_, expires_at] = check_validity(&self.cert, &chain[0], now)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|error| invalid_pem(&self.key, error, "private key"))?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(&self.cert, error))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let mut authorities = RootCertStore::empty();
                for authority in certificates(file)? {
                    authorities.add(authority).map_err(|error| invalid(file, error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider());
                builder.with_client_cert_verifier(verifier.build().map_err(|error| invalid(file, error))?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsFileError::WrongKey { key: self.key.clone(), cert: self.cert.clone() }
            }
            TlsError::InvalidCertificate(_) => invalid(&self.cert, error),
            _ => invalid(&self.key, error),
        })?;
        config.alpn_protocols = [&b"h2"[..], b"http/1.1"].map(<[u8]>::to_vec).to_vec();
        Ok(LoadedTls { config: Arc::new(config), expires_at })
    }

    /// All files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.cert, &self.key].into_iter().chain(&self.client_ca).map(PathBuf::as_path)
    }
}

/// The certificates in a file, at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let bytes = read(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if found.is_empty() => Err(invalid_pem(file, PemError::NoItemsFound, "certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(invalid_pem(file, error, "certificate")),
    }
}

/// From when until when a certificate is valid, which must include `now`.
fn check_validity(
    file: &Path,
    certificate: &CertificateDer<'_>,
    now: SystemTime,
) -> Result<[SystemTime; 2], TlsFileError> {
    let parsed = Certificate::from_der(certificate).map_err(|error| invalid(file, error))?;
    let validity = parsed.tbs_certificate.validity;
    let [from, until] =
        [validity.not_before, validity.not_after].map(|time| UNIX_EPOCH + time.to_unix_duration());
    match now {
        now if now > until => Err(TlsFileError::Expired { file: file.to_owned(), at: until }),
        now if now < from => Err(TlsFileError::NotYetValid { file: file.to_owned(), from }),
        _ => Ok([from, until]),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, TlsFileError> {
    let read = || {
        // Checked before opening, because opening a pipe would block.
        if !std::fs::metadata(file)?.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        let mut bytes = Vec::new();
        File::open(file)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > MAX_BYTES {
            true => Err(io::Error::other(format!("it has more than {} MiB", MAX_BYTES >> 20))),
            false => Ok(bytes),
        }
    };
    read().map_err(|error: io::Error| TlsFileError::Unreadable {
        file: file.to_owned(),
        why: error.to_string(),
    })
}

fn invalid(file: &Path, why: impl fmt::Display) -> TlsFileError {
    TlsFileError::Invalid { file: file.to_owned(), why: why.to_string() }
}

fn invalid_pem(file: &Path, error: PemError, wanted: &str) -> TlsFileError {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match error {
        PemError::NoItemsFound => invalid(file, format!("it contains no {wanted} in the PEM format")),
        PemError::MissingSectionEnd { end_marker } => {
            invalid(file, format!("the line `-----END {}-----` is missing", text(&end_marker)))
        }
        PemError::IllegalSectionStart { line } => {
            invalid(file, format!("the line `{}` does not begin a section", text(&line)))
        }
        error => invalid(file, error),
    }
}

/// A time in UTC, as RFC 3339 writes it.
struct Date(SystemTime);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        match DateTime::from_unix_duration(since) {
            Ok(date) => write!(f, "{date}"),
            Err(_) => f.write_str("a time that has no date"),
        }
    }
}
