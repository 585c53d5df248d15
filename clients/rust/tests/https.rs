//! https, against the real server.

use crate::servers::Server;
use limina_client::{Done, Error, Limina, types::Message};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use std::{fs, path::Path};
use tempfile::TempDir;

/// An authority, and what it has signed, as PEM files in a directory.
struct Authority {
    directory: TempDir,
}

impl Authority {
    /// Signs a certificate for a server at 127.0.0.1 and one for a client.
    fn new() -> Authority {
        let directory = TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        let authority_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        fs::write(path("ca.pem"), params.self_signed(&authority_key).unwrap().pem()).unwrap();
        let authority = Issuer::new(params, authority_key);
        for (name, subject) in [("server", "127.0.0.1"), ("client", "client.example")] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![subject.to_owned()]).unwrap();
            fs::write(path(&format!("{name}.pem")), params.signed_by(&key, &authority).unwrap().pem())
                .unwrap();
            fs::write(path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Authority { directory }
    }

    fn path(&self, name: &str) -> String {
        Path::new(self.directory.path()).join(name).to_str().unwrap().to_owned()
    }

    fn pem(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }
}

#[tokio::test]
async fn a_server_with_tls_is_called() {
    let authority = Authority::new();
    let (certificate, key) = (authority.path("server.pem"), authority.path("server.key"));
    let Some(server) = Server::start_with(&["--tls-cert", &certificate, "--tls-key", &key]) else { return };
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let client = Limina::builder(&server.url).root_certificates(authority.pem("ca.pem")).build().unwrap();
    client.rules().create(&json!({"name": "r", "limit": 1})).await.unwrap();
    assert!(client.check([("a", "x")]).await.unwrap().allowed);
    client.events().put("s", &json!({"mode": "only_once", "duration": "1d"})).await.unwrap();
    assert!(matches!(*client.events().follow("s").next().await.unwrap(), Message::KeyFrame { .. }));

    // A server that shows the certificate of a stranger is not asked.
    let stranger = Limina::builder(&server.url).root_certificates(Authority::new().pem("ca.pem")).retries(0);
    let error = stranger.build().unwrap().check([("a", "x")]).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { done: Done::No, .. }), "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_server_that_asks_for_client_certificates_is_called() {
    let authority = Authority::new();
    let (certificate, key) = (authority.path("server.pem"), authority.path("server.key"));
    let ca = authority.path("ca.pem");
    let flags = ["--tls-cert", &certificate, "--tls-key", &key, "--tls-client-ca", &ca];
    let Some(server) = Server::start_with(&flags) else { return };
    let builder = || Limina::builder(&server.url).root_certificates(authority.pem("ca.pem")).retries(0);
    let known = builder().client_certificate(authority.pem("client.pem"), authority.pem("client.key"));
    known.build().unwrap().server().ready().await.unwrap();
    let error = builder().build().unwrap().server().ready().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

#[test]
fn what_is_no_certificate_is_refused() {
    let builder = || Limina::builder("https://127.0.0.1:1");
    assert!(matches!(builder().root_certificates("no PEM").build(), Err(Error::Invalid(_))));
    assert!(matches!(builder().client_certificate("no PEM", "no key").build(), Err(Error::Invalid(_))));
}
