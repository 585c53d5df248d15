//! How nodes know each other: each has a key and a certificate of its own, and accepts the certificates that the database lists.
//!
//! A node makes its key when it starts, and never stores it. It publishes the SHA-256 of its certificate in its row of the
//! database. Both sides of a connection prove by TLS 1.3 that they have the key of the certificate that they show. Then each
//! looks for the other's certificate among the listed ones, and closes the connection if it is not there, before anything
//! else is sent or read. So whoever may write to the database may join, and nobody else.

use super::VERSION;
use crate::tls::provider;
use limina_node::Fingerprint;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error as TlsError, ServerConfig, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature},
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    server::{
        NoServerSessionStorage,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::TLS13,
};
use sha2::{Digest, Sha256};
use std::{collections::BTreeSet, io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    time::{Instant, timeout},
};
use tokio_rustls::{TlsConnector, client, server};

/// The name in every node's certificate. Nodes are told apart by their certificates alone.
const NAME: &str = "node.limina";
/// How long a node waits for the database before it refuses a certificate. The list of nodes is read at least every second.
const RE_READ_WITHIN: Duration = Duration::from_secs(2);
/// The first byte that each side sends, before its [`VERSION`]. The accepting side sends them when it has found the other's
/// certificate. The other side sends nothing before, so that a request to a node which refuses the connection was certainly not
/// executed.
const WELCOME: u8 = b'L';

/// The key and the certificate of this node, and the certificates of the nodes that the database lists.
pub(crate) struct Identity {
    fingerprint: Fingerprint,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    listed: watch::Sender<Listed>,
}

/// How another node has answered a connection.
pub(super) enum Greeting {
    /// It is a node of this cluster, knows this one, and is of the same version.
    Welcome(Box<client::TlsStream<TcpStream>>),
    /// The database does not list its certificate.
    Stranger,
    /// It is of another version.
    Version(u8),
}

/// Why a node cannot make its certificate.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The key or the certificate could not be made.
    #[error("making the certificate of this node")]
    Certificate(#[from] rcgen::Error),
    /// TLS does not take the certificate.
    #[error("using the certificate of this node")]
    Tls(#[from] TlsError),
}

/// What the database listed when it was last asked.
#[derive(Default)]
struct Listed {
    certificates: BTreeSet<Fingerprint>,
    /// None before the first answer.
    asked_at: Option<Instant>,
}

impl Identity {
    pub(super) fn generate() -> Result<Identity, IdentityError> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new([NAME.to_owned()])?.self_signed(&key)?.der().clone();
        let fingerprint = fingerprint(&certificate);
        let key = || PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let any = Arc::new(ProvesItsKey(ring::default_provider().signature_verification_algorithms));
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(any.clone())
            .with_client_auth_cert(vec![certificate.clone()], key())?;
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(any)
            .with_single_cert(vec![certificate], key())?;
        // Every connection proves the keys anew. There are few, and they last.
        client.resumption = Resumption::disabled();
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let (client, server) = (Arc::new(client), Arc::new(server));
        Ok(Identity { fingerprint, client, server, listed: watch::Sender::default() })
    }

    /// This node's own certificate.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// TLS for the connections of other nodes. Only [`Identity::welcome`] decides whether they are nodes.
    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }

    /// The database listed these certificates when it was asked at this time.
    pub(super) fn handle_listed(&self, certificates: Vec<Fingerprint>, asked_at: Instant) {
        let certificates = certificates.into_iter().collect();
        self.listed.send_replace(Listed { certificates, asked_at: Some(asked_at) });
    }

    /// Accepts the connection of another node, or returns None: it is not one that the database lists. Fails if the other node is
    /// of another version.
    pub(crate) async fn welcome<S>(
        &self,
        mut stream: server::TlsStream<S>,
    ) -> io::Result<Option<server::TlsStream<S>>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if !self.is_listed(stream.get_ref().1.peer_certificates()).await {
            return Ok(None);
        }
        stream.write_all(&[WELCOME, VERSION]).await?;
        stream.flush().await?;
        match [stream.read_u8().await?, stream.read_u8().await?] {
            [WELCOME, VERSION] => Ok(Some(stream)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Runs the TLS handshake of a connection to another node. The other node may refuse this one: that is an error.
    pub(super) async fn connect(&self, socket: TcpStream) -> io::Result<Greeting> {
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let mut stream = TlsConnector::from(self.client.clone()).connect(name, socket).await?;
        if !self.is_listed(stream.get_ref().1.peer_certificates()).await {
            return Ok(Greeting::Stranger);
        }
        match [stream.read_u8().await?, stream.read_u8().await?] {
            [WELCOME, VERSION] => {}
            [WELCOME, version] => return Ok(Greeting::Version(version)),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        stream.write_all(&[WELCOME, VERSION]).await?;
        stream.flush().await?;
        Ok(Greeting::Welcome(Box::new(stream)))
    }

    /// Whether the database lists the certificate that the other side of a connection has shown. The other node may just have
    /// joined, so a certificate is refused only after the database was asked again.
    async fn is_listed(&self, shown: Option<&[CertificateDer<'_>]>) -> bool {
        let Some(shown) = shown.and_then(|chain| chain.first()).map(|shown| fingerprint(shown)) else {
            return false;
        };
        let begin = Some(Instant::now());
        let mut listed = self.listed.subscribe();
        let is_decided = |listed: &Listed| listed.certificates.contains(&shown) || listed.asked_at > begin;
        let decided = timeout(RE_READ_WITHIN, listed.wait_for(is_decided)).await;
        decided.is_ok_and(|listed| listed.is_ok_and(|listed| listed.certificates.contains(&shown)))
    }
}

fn fingerprint(certificate: &CertificateDer<'_>) -> Fingerprint {
    Fingerprint(Sha256::digest(certificate).into())
}

/// Accepts every certificate whose key the other side proves to have. This decides nothing: [`Identity::is_listed`] does, after
/// the handshake, because it may have to wait for the database, and TLS cannot wait.
#[derive(Debug)]
struct ProvesItsKey(WebPkiSupportedAlgorithms);

impl ProvesItsKey {
    fn verify_key(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }
}

/// Nodes offer TLS 1.3 only, so there are no signatures of TLS 1.2.
fn no_tls12() -> Result<HandshakeSignatureValid, TlsError> {
    Err(TlsError::General("nodes use TLS 1.3".to_owned()))
}

impl ServerCertVerifier for ProvesItsKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.verify_key(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

impl ClientCertVerifier for ProvesItsKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.verify_key(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> Vec<CertificateDer<'static>> {
        let key = KeyPair::generate().unwrap();
        vec![CertificateParams::default().self_signed(&key).unwrap().der().clone()]
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_is_refused_only_after_the_database_was_asked_again() {
        let identity = &Identity::generate().unwrap();
        let [one, other, third] = [(); 3].map(|()| certificate());
        let lists = |certificates: Vec<&Vec<CertificateDer<'static>>>| {
            let certificates = certificates.iter().map(|certificate| fingerprint(&certificate[0]));
            identity.handle_listed(certificates.collect(), Instant::now());
        };
        let is_listed = async |certificate: &Vec<CertificateDer<'static>>| {
            let begin = Instant::now();
            (identity.is_listed(Some(certificate)).await, begin.elapsed())
        };
        assert!(!identity.is_listed(None).await, "no certificate");
        assert_eq!(is_listed(&one).await, (false, RE_READ_WITHIN), "the database does not answer");
        lists(vec![&one]);
        assert_eq!(is_listed(&one).await, (true, Duration::ZERO));
        // A node that has just joined is found by the next reading.
        let later = async |certificates| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            lists(certificates);
        };
        let (found, ()) = tokio::join!(is_listed(&other), later(vec![&one, &other]));
        assert_eq!(found, (true, Duration::from_secs(1)));
        let (found, ()) = tokio::join!(is_listed(&third), later(vec![&one]));
        assert_eq!(found, (false, Duration::from_secs(1)));
        let (found, ()) = tokio::join!(is_listed(&other), later(vec![&one]));
        assert_eq!(found, (false, Duration::from_secs(1)), "it is listed no more");
    }
}
