//! https, with rustls.

use crate::error::{Error, Result};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::ParsedCertificate,
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
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid("TLS", error))?;
        let config = if self.roots.is_empty() {
            let roots = if https { system_roots()? } else { RootCertStore::empty() };
            config.with_root_certificates(roots)
        } else {
            let trusted = certificates(&self.roots, "the root certificates")?;
            let mut roots = RootCertStore::empty();
            for certificate in &trusted {
                roots.add(certificate.clone()).map_err(|error| invalid("the root certificates", error))?;
            }
            let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| invalid("the root certificates", error))?;
            config.dangerous().with_custom_certificate_verifier(Arc::new(SignedOrTrusted { signed, trusted }))
        };
        let Some((chain, key)) = self.identity else { return Ok(config.with_no_client_auth()) };
        let chain = certificates(&chain, "the client certificate")?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| invalid("the client's key", error))?;
        config.with_client_auth_cert(chain, key).map_err(|error| invalid("the client certificate", error))
    }
}

fn system_roots() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    let (usable, _unusable) = roots.add_parsable_certificates(system.certs);
    if usable == 0 {
        let why = system.errors.first().map_or("there are none".to_owned(), ToString::to_string);
        return Err(invalid("the system's root certificates", why));
    }
    Ok(roots)
}

/// Accepts what an authority has signed, and a server that shows exactly one of the given certificates.
///
/// `openssl req -x509` makes self-signed certificates that are marked as authorities. rustls never takes an authority's certificate
/// as that of a server, but OpenSSL, and with it curl and Python, does so if the user trusts exactly this certificate.
#[derive(Debug)]
struct SignedOrTrusted {
    signed: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for SignedOrTrusted {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.signed.verify_server_cert(server, intermediates, name, ocsp_response, now) {
            // The validity in time was checked before this error is returned. The name was not.
            Err(error) if is_authority(&error) && self.trusted.contains(server) => {
                verify_server_name(&ParsedCertificate::try_from(server)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// The only objection is that the server's certificate is marked as an authority.
fn is_authority(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) = error else {
        return false;
    };
    matches!(cause.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
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

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    /// A self-signed certificate for `localhost`, as `openssl req -x509` makes it: marked as an authority.
    fn self_signed(last_year: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = date_time_ymd(last_year, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn a_self_signed_certificate_is_accepted_only_if_exactly_it_is_trusted() {
        #[track_caller]
        fn check(trusted: &CertificateDer<'static>, shown: &CertificateDer<'_>, name: &str, accepted: bool) {
            let mut roots = RootCertStore::empty();
            roots.add(trusted.clone()).unwrap();
            let provider = Arc::new(ring::default_provider());
            let signed =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            let verifier = SignedOrTrusted { signed, trusted: vec![trusted.clone()] };
            let name = ServerName::try_from(name).unwrap();
            let verified = verifier.verify_server_cert(shown, &[], &name, &[], UnixTime::now());
            assert_eq!(verified.is_ok(), accepted, "{verified:?}");
        }
        let (own, other, expired) = (self_signed(4000), self_signed(4000), self_signed(2000));
        check(&own, &own, "localhost", true);
        check(&own, &own, "example.com", false);
        check(&own, &other, "localhost", false);
        check(&expired, &expired, "localhost", false);
    }
}
