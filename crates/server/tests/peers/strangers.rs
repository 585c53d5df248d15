//! Who is no node of the cluster is refused before anything is read, and so is a node that is no longer.

use super::*;
use crate::peers::raw::{ASK, RawConnection, WELCOME, frame};
use reqwest::Client;
use rustls::{
    ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime},
};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// A certificate, and TLS with it that accepts every other.
pub(crate) struct Certificate {
    der: CertificateDer<'static>,
    key: rcgen::KeyPair,
}

/// The node behind `peers` knows these certificates, and no others.
pub(crate) fn introduce_to(peers: &PeerClient, certificates: &[&Certificate]) {
    let listed = certificates.iter().map(|certificate| certificate.fingerprint()).collect();
    peers.handle_certificates(listed, Instant::now());
}

impl Certificate {
    pub(crate) fn new() -> Certificate {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["anybody".to_owned()]).unwrap();
        Certificate { der: params.self_signed(&key).unwrap().der().clone(), key }
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint(Sha256::digest(&self.der).into())
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        self.key.serialize_der().try_into().unwrap()
    }

    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth();
        Arc::new(config.with_single_cert(vec![self.der.clone()], self.key()).unwrap())
    }

    /// Connects with this certificate.
    pub(crate) async fn connect(&self, address: &str) -> std::io::Result<TlsStream<TcpStream>> {
        connect(address, |config| config.with_client_auth_cert(vec![self.der.clone()], self.key()).unwrap())
            .await
    }
}

type WithVerifier = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

async fn connect(
    address: &str,
    finish: impl FnOnce(WithVerifier) -> ClientConfig,
) -> std::io::Result<TlsStream<TcpStream>> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody));
    let connector = TlsConnector::from(Arc::new(finish(config)));
    connector.connect(ServerName::try_from("anybody").unwrap(), TcpStream::connect(address).await?).await
}

/// Checks nothing.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// The database is asked again and again, and lists these.
fn keep_listing(peers: &Arc<PeerClient>, listed: Vec<Fingerprint>) -> JoinHandle<()> {
    let peers = peers.clone();
    tokio::spawn(async move {
        loop {
            peers.handle_certificates(listed.clone(), Instant::now());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

/// Returns what a server sends until it closes the connection, to a client that begins with a greeting and a whole request.
async fn answer_to(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) -> Vec<u8> {
    let request = [&WELCOME[..], &frame(ASK, 1, &deletion())].concat();
    let _may_be_closed = stream.write_all(&request).await;
    let mut answer = Vec::new();
    let _may_be_reset = soon(stream.read_to_end(&mut answer)).await;
    answer
}

#[tokio::test]
async fn a_stranger_is_refused_before_anything_is_read() {
    let node = Node::start().await;
    let listed = Certificate::new();
    let listing = keep_listing(&node.server.peers, vec![listed.fingerprint()]);
    assert!(soon(RawConnection::peer(node.address(), &listed)).await.is_ok());

    let stranger = soon(Certificate::new().connect(node.address())).await.unwrap();
    assert_eq!(answer_to(stranger).await, b"", "a certificate that is not listed");
    let nobody = soon(connect(node.address(), |config| config.with_no_client_auth())).await;
    if let Ok(nobody) = nobody {
        assert_eq!(answer_to(nobody).await, b"", "no certificate");
    }
    // A certificate is public: who shows that of a node must have its key.
    let thief = Certificate { der: listed.der.clone(), key: rcgen::KeyPair::generate().unwrap() };
    let key = rustls::crypto::ring::sign::any_supported_type(&thief.key()).unwrap();
    let shown = Arc::new(rustls::sign::CertifiedKey::new(vec![thief.der.clone()], key));
    let stolen =
        soon(connect(node.address(), |config| config.with_client_cert_resolver(Arc::new(Shows(shown)))))
            .await;
    if let Ok(stolen) = stolen {
        assert_eq!(answer_to(stolen).await, b"", "a certificate without its key");
    }
    // No TLS: TLS answers with an alert, a record of type 21, and nothing else.
    let plain = TcpStream::connect(node.address()).await.unwrap();
    let answer = answer_to(plain).await;
    assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
    assert!(node.fake.asked.lock().unwrap().is_empty());

    let metrics = Client::new().get(format!("http://{}/metrics", node.server.public)).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let counted = r#"limina_tls_handshakes_failed_total{listener="peers",reason="stranger"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    listing.abort();
}

#[derive(Debug)]
struct Shows(Arc<rustls::sign::CertifiedKey>);

impl rustls::client::ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<rustls::sign::CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// A node sends nothing to a stranger, and nothing to a node that does not know it. So nothing was done.
#[tokio::test]
async fn both_sides_must_know_each_other() {
    let node = Node::start().await;
    let client = Arc::new(PeerClient::new(Budget::unlimited()).unwrap());
    let certificates = [client.certificate().unwrap(), node.server.peers.certificate().unwrap()];
    let check = async |client_knows: &[Fingerprint], node_knows: &[Fingerprint], expect| {
        let listing = [
            keep_listing(&client, client_knows.to_vec()),
            keep_listing(&node.server.peers, node_knows.to_vec()),
        ];
        let answer = soon(client.ask(node.address(), ShardId(0), &read())).await;
        assert_eq!(answer, expect, "{client_knows:?} {node_knows:?}");
        listing.iter().for_each(JoinHandle::abort);
    };
    let [mine, its] = certificates;
    check(&[mine], &[mine, its], Err(PeerError::NotThere)).await;
    check(&[mine, its], &[its], Err(PeerError::NotThere)).await;
    assert_eq!(*node.fake.asked.lock().unwrap(), []);
    check(&[mine, its], &[mine, its], Ok(Outcome::NamespaceDeleted)).await;
}

/// The node has just joined: the list of the node that it asks is older.
#[tokio::test]
async fn a_new_node_is_let_in_when_the_list_is_read_again() {
    let node = Node::start().await;
    let client = PeerClient::new(Budget::unlimited()).unwrap();
    let certificates = vec![client.certificate().unwrap(), node.server.peers.certificate().unwrap()];
    client.handle_certificates(certificates.clone(), Instant::now());
    node.server.peers.handle_certificates(certificates[1..].to_vec(), Instant::now());
    let listed = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        node.server.peers.handle_certificates(certificates.clone(), Instant::now());
    };
    let request = read();
    let (answer, ()) =
        soon(async { tokio::join!(client.ask(node.address(), ShardId(0), &request), listed) }).await;
    assert_eq!(answer, Ok(Outcome::NamespaceDeleted));
}
