//! TLS for clients: which protocols they get, which certificates they need, and what a client costs that stalls.

use super::*;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use limina_server::{Tls, TlsFileError, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{PrivateKeyDer, ServerName},
};
use std::{path::PathBuf, time::SystemTime};
use tempfile::TempDir;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_tungstenite::tungstenite::Message;

/// An authority, which signs certificates.
struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
struct Signed {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    fn sign(&self) -> Signed {
        self.sign_with(|_| ())
    }

    fn sign_with(&self, set: impl FnOnce(&mut CertificateParams)) -> Signed {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        set(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Signed { certificate, key }
    }
}

/// The files of a server.
struct Files {
    home: TempDir,
}

impl Files {
    fn new() -> Files {
        Files { home: TempDir::new().unwrap() }
    }

    fn of(signed: &Signed) -> Files {
        let files = Files::new();
        files.write("cert.pem", &signed.certificate.pem());
        files.write("key.pem", &signed.key.serialize_pem());
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn paths(&self, client_ca: bool) -> TlsFiles {
        let [cert, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map(|name| self.path(name));
        TlsFiles { cert, key, client_ca: client_ca.then_some(ca) }
    }

    fn load(&self, client_ca: bool) -> Result<Tls, TlsFileError> {
        self.paths(client_ca).load(SystemTime::now()).map(Tls::new)
    }
}

async fn start_tls(tls: Tls, max_connections: usize) -> Server {
    start_app(AppOptions { tls: Some(tls), max_connections, ..anyone() }).await
}

/// Connects as a client that trusts this authority, speaks these protocols, and has this certificate.
async fn connect(
    server: &Server,
    authority: &Authority,
    protocols: &[&str],
    mine: Option<&Signed>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = readers::connect(server).await;
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match mine {
        None => config.with_no_client_auth(),
        Some(mine) => {
            let key = PrivateKeyDer::try_from(mine.key.serialize_der()).unwrap();
            config.with_client_auth_cert(vec![mine.certificate.der().clone()], key).unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

fn get(path: &str) -> hyper::Request<Empty<Bytes>> {
    hyper::Request::get(format!("https://localhost{path}"))
        .header("host", "localhost")
        .body(Empty::new())
        .unwrap()
}

/// The status of a request over HTTP/1.1, and the connection for more.
async fn asks(stream: TlsStream<TcpStream>) -> (u16, http1::SendRequest<Empty<Bytes>>) {
    let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    let status = sender.send_request(get("/healthz")).await.map_or(0, |answer| answer.status().as_u16());
    (status, sender)
}

#[tokio::test]
async fn the_client_chooses_the_protocol() {
    let authority = Authority::new();
    let server = start_tls(Files::of(&authority.sign()).load(false).unwrap(), 16).await;
    let stream = connect(&server, &authority, &["h2", "http/1.1"], None).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    assert_eq!(sender.send_request(get("/healthz")).await.unwrap().status(), 200);
    for protocols in [&["http/1.1"][..], &[]] {
        let stream = connect(&server, &authority, protocols, None).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), protocols.first().map(|name| name.as_bytes()));
        assert_eq!(asks(stream).await.0, 200);
    }
    assert!(connect(&server, &authority, &["spdy/1"], None).await.is_err(), "no protocol in common");
    // What is not TLS is not understood, and gets nothing that could be taken for an answer.
    let answer = server.client.get(format!("http://{}/healthz", server.address)).send().await;
    assert!(answer.is_err(), "{answer:?}");
}

#[tokio::test]
async fn a_websocket_over_tls() {
    let authority = Authority::new();
    let server = start_tls(Files::of(&authority.sign()).load(false).unwrap(), 16).await;
    let stream = connect(&server, &authority, &["http/1.1"], None).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async("wss://localhost/ws", stream).await.unwrap();
    socket.send(Message::text("CONNECT\naccept-version:1.2\n\n\0")).await.unwrap();
    let connected = socket.next().await.unwrap().unwrap().into_text().unwrap();
    assert!(connected.starts_with("CONNECTED\n"), "{connected:?}");
}

#[tokio::test]
async fn a_client_shows_a_certificate_if_there_is_an_authority_for_them() {
    let (authority, clients, others) = (Authority::new(), Authority::new(), Authority::new());
    let files = Files::of(&authority.sign());
    files.write("ca.pem", &clients.certificate.pem());
    let server = start_tls(files.load(true).unwrap(), 16).await;
    // In TLS 1.3 the client's handshake ends before the server has judged its certificate.
    let status = async |mine: Option<&Signed>| match connect(&server, &authority, &[], mine).await {
        Ok(stream) => asks(stream).await.0,
        Err(_) => 0,
    };
    assert_eq!(status(None).await, 0);
    assert_eq!(status(Some(&others.sign())).await, 0);
    assert_eq!(status(Some(&clients.sign())).await, 200);
    server.nothing_asked();
}

#[tokio::test]
async fn a_replaced_certificate_is_for_new_connections() {
    let (old, new) = (Authority::new(), Authority::new());
    let tls = Files::of(&old.sign()).load(false).unwrap();
    let server = start_tls(tls.clone(), 16).await;
    let (status, mut before) = asks(connect(&server, &old, &[], None).await.unwrap()).await;
    assert_eq!(status, 200);
    tls.replace(Files::of(&new.sign()).paths(false).load(SystemTime::now()).unwrap());
    assert!(connect(&server, &old, &[], None).await.is_err(), "the old certificate is still shown");
    assert_eq!(asks(connect(&server, &new, &[], None).await.unwrap()).await.0, 200);
    assert_eq!(before.send_request(get("/healthz")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn who_reads_a_large_answer_gets_it_and_who_reads_nothing_is_cut_off() {
    let authority = Authority::new();
    let tls = Files::of(&authority.sign()).load(false).unwrap();
    let patient = start_tls(tls.clone(), 16).await;
    let reader_timeout = Duration::from_millis(300);
    let impatient = start_app(AppOptions { tls: Some(tls), reader_timeout, ..anyone() }).await;
    [&patient, &impatient].iter().for_each(|server| server.answers(readers::large()));
    let mut reader = connect(&patient, &authority, &[], None).await.unwrap();
    let mut sleeper = connect(&impatient, &authority, &[], None).await.unwrap();
    sleeper.write_all(readers::LIST).await.unwrap();
    reader.write_all(readers::LIST).await.unwrap();
    let (mut length, mut piece) = (0, vec![0; 64 << 10]);
    while length < readers::BYTES {
        let count = reader.read(&mut piece).await.unwrap();
        assert!(count > 0, "cut off after {length} bytes");
        length += count;
    }
    // It goes on sending, so that the end of the connection is noticed without a byte being read.
    let cut = async {
        while sleeper.write_all(b"G").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), cut).await.expect("it is cut off");
}

/// Ten times as many clients as may be connected begin a handshake and say nothing more. They lose their connections, and an
/// honest client gets in.
#[tokio::test]
async fn clients_that_stall_in_the_handshake_make_way() {
    const CONNECTIONS: usize = 8;
    let authority = Authority::new();
    let server = start_tls(Files::of(&authority.sign()).load(false).unwrap(), CONNECTIONS).await;
    let mut stalled = Vec::new();
    for _ in 0..10 * CONNECTIONS {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // The beginning of a record that never ends.
        let _may_be_closed = stream.write_all(b"\x16\x03\x01").await;
        stalled.push(stream);
    }
    // At most half of the connections are in a handshake, so all others are closed.
    let mut closed: futures_util::stream::FuturesUnordered<_> =
        stalled.iter_mut().map(|stream| async { stream.read(&mut [0]).await.unwrap_or(0) }).collect();
    for _ in 0..10 * CONNECTIONS - CONNECTIONS / 2 {
        assert_eq!(closed.next().await, Some(0));
    }
    let stream = connect(&server, &authority, &[], None).await.unwrap();
    assert_eq!(asks(stream).await.0, 200);
    drop(closed);
    let metrics = server_metrics(&server, &authority).await;
    assert!(metrics.contains(r#"limina_tls_handshakes_failed_total{listener="clients",reason="crowded"}"#));
    // A server that stops does not wait for handshakes.
    let begin = std::time::Instant::now();
    let Server { stop, serving, .. } = server;
    stop.unwrap().send(()).unwrap();
    serving.await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
}

async fn server_metrics(server: &Server, authority: &Authority) -> String {
    use http_body_util::BodyExt;
    let stream = connect(server, authority, &[], None).await.unwrap();
    let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    let answer = sender.send_request(get("/metrics")).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_reason() {
    let authority = Authority::new();
    let good = authority.sign();
    #[track_caller]
    fn check(files: &Files, client_ca: bool, expect: &[&str]) {
        let said = files.load(client_ca).err().expect("an error").to_string();
        for word in expect {
            assert!(said.contains(word), "{said:?} does not say {word:?}");
        }
    }
    let files = Files::new();
    check(&files, false, &["cert.pem cannot be read", "No such file"]);
    files.write("cert.pem", "not a certificate");
    check(&files, false, &["cert.pem", "contains no certificate in the PEM format"]);
    files.write("cert.pem", good.certificate.pem().trim_end().trim_end_matches('-'));
    check(&files, false, &["cert.pem", "`-----END CERTIFICATE-----` is missing"]);
    files.write("cert.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    check(&files, false, &["cert.pem"]);
    files.write("cert.pem", &good.certificate.pem());
    check(&files, false, &["key.pem cannot be read"]);
    files.write("key.pem", &good.certificate.pem());
    check(&files, false, &["key.pem", "contains no private key"]);
    files.write("key.pem", &authority.sign().key.serialize_pem());
    check(&files, false, &["the key in ", "key.pem is not that of the certificate in ", "cert.pem"]);
    files.write("key.pem", &good.key.serialize_pem());
    assert!(files.load(false).is_ok());
    check(&files, true, &["ca.pem cannot be read"]);
    files.write("ca.pem", "");
    check(&files, true, &["ca.pem", "contains no certificate"]);
    let expired = authority.sign_with(|params| params.not_after = date_time_ymd(2020, 2, 3));
    check(&Files::of(&expired), false, &["cert.pem", "the certificate expired at 2020-02-03T00:00:00Z"]);
    let later = authority.sign_with(|params| params.not_before = date_time_ymd(4000, 1, 1));
    check(&Files::of(&later), false, &["cert.pem", "valid only from 4000-01-01T00:00:00Z"]);
}
