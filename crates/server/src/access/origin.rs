//! The headers `Host` and `Origin`: which pages in a browser may call the server, and the answers of CORS.
//!
//! A browser lets any page call `http://localhost:7070`, and a page whose name resolves to 127.0.0.1 (DNS rebinding) may even
//! read the answers. A server without tokens therefore compares both headers, which a page cannot forge.

use super::Policy;
use crate::http::problem::{Code, Failure};
use axum::{
    body::Body,
    http::{
        HeaderMap, HeaderValue, Method, StatusCode, Version,
        header::{
            ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
            ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HOST,
            ORIGIN, UPGRADE, VARY,
        },
        request::Parts,
    },
    response::Response,
};
use serde::{Deserialize, Deserializer, de::Error};
use std::{net::IpAddr, str::FromStr};

/// The origin of a web page: scheme, host and port, such as `https://console.example.com`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(String);

/// A text is not an [`Origin`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an origin: write http://HOST, https://HOST or one of them with :PORT, without a path")]
pub struct InvalidOrigin(String);

impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Origin, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(Error::custom)
    }
}

impl FromStr for Origin {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Origin, InvalidOrigin> {
        let invalid = || InvalidOrigin(text.to_owned());
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let rest = rest.ok_or_else(invalid)?;
        let is_plain = rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte));
        if rest.is_empty() || !is_plain {
            return Err(invalid());
        }
        Ok(Origin(text.to_ascii_lowercase()))
    }
}

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE");
const HEADERS: HeaderValue =
    HeaderValue::from_static("authorization, content-type, idempotency-key, last-event-id, x-request-id");
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "allow, ratelimit, ratelimit-policy, retry-after, www-authenticate, x-request-id",
);
/// How long a browser may remember the answer to a preflight request, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// What the headers of a request mean for its answer.
pub(super) enum Passed {
    /// The request goes on. If it comes from a page of an allowed origin, its answer must say so.
    On(Option<HeaderValue>),
    /// The request was a preflight request of a browser, and this is its answer.
    Answered(Response),
}

impl Policy {
    /// Checks `Host` and `Origin`.
    pub(super) fn check_headers(&self, request: &Parts) -> Result<Passed, Failure> {
        let host = host_of(request);
        if self.is_loopback()
            && let Some(host) = host
            && !is_loopback(host_name(host))
        {
            return Err(refused(
                "Without tokens, the header `Host` must be a loopback name, such as localhost.",
            ));
        }
        let Some(origin) = request.headers.get(ORIGIN) else { return Ok(Passed::On(None)) };
        let text = origin.to_str().unwrap_or_default();
        let is_allowed = self.origins().iter().any(|allowed| allowed.0.eq_ignore_ascii_case(text));
        if is_allowed {
            return Ok(match is_preflight(request) {
                true => Passed::Answered(preflight(origin.clone())),
                false => Passed::On(Some(origin.clone())),
            });
        }
        if host.is_some_and(|host| self.is_own(text, host)) {
            return Ok(Passed::On(None));
        }
        // With tokens, a page of another site has no token and gets nothing. A preflight request tells its browser so.
        let is_web_socket = request.headers.contains_key(UPGRADE);
        if self.has_tokens() && !is_web_socket && !is_preflight(request) {
            return Ok(Passed::On(None));
        }
        Err(refused("The header `Origin` is that of another site. --allow-origin lets it in."))
    }

    /// Whether the origin is that of this server's own pages.
    fn is_own(&self, origin: &str, host: &str) -> bool {
        let Some((scheme, own)) = origin.split_once("://") else { return false };
        let default = if scheme.eq_ignore_ascii_case("https") { "443" } else { "80" };
        let port = |text| port_of(text).unwrap_or(default);
        let (name, host_name) = (host_name(own), host_name(host));
        let is_same = name.eq_ignore_ascii_case(host_name);
        // On a loopback address, `localhost` and `127.0.0.1` are the same server.
        let is_alias = self.is_loopback() && is_loopback(name) && is_loopback(host_name);
        port(own) == port(host) && (is_same || is_alias)
    }
}

/// Fails with 400 if a request over HTTP/1 does not have exactly one valid `Host`, as RFC 9112 demands. Two programs on the way
/// of such a request could take it for requests to two different hosts. In HTTP/1.0 the header may be absent.
pub(super) fn check_host(request: &Parts) -> Result<(), Failure> {
    if request.version >= Version::HTTP_2 {
        return Ok(());
    }
    let mut hosts = request.headers.get_all(HOST).iter();
    let reason = match (hosts.next(), hosts.next()) {
        (None, _) if request.version < Version::HTTP_11 => return Ok(()),
        (None, _) => "is required",
        (Some(_), Some(_)) => "must be given only once",
        (Some(host), None) if host.as_bytes().iter().all(|byte| is_in_host(*byte)) => return Ok(()),
        (Some(_), None) => "must be a host, with or without a port",
    };
    Err(Failure::invalid_header("Host", reason))
}

/// Whether the byte may occur in a host or its port.
fn is_in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%:[]".contains(&byte)
}

/// The host that the client has called. HTTP/2 without TLS is not judged: no browser speaks it, and the names that proxies send
/// there are their own. HTTP/2 over TLS has the scheme `https`.
fn host_of(request: &Parts) -> Option<&str> {
    if request.version == Version::HTTP_2 {
        let is_tls = request.uri.scheme_str() == Some("https");
        return request.uri.authority().filter(|_| is_tls).map(|authority| authority.as_str());
    }
    // A request that names another host in its first line is a request to a proxy.
    let authority = request.uri.authority().map(|authority| authority.as_str());
    authority.or_else(|| Some(request.headers.get(HOST)?.to_str().unwrap_or("?")))
}

/// The host without its port.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    }
}

fn port_of(host: &str) -> Option<&str> {
    let rest = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    rest.rsplit_once(':').map(|(_, port)| port)
}

/// Whether the name can only mean this machine.
fn is_loopback(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn is_preflight(request: &Parts) -> bool {
    request.method == Method::OPTIONS && request.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight(origin: HeaderValue) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    expose_to(headers, origin);
    response
}

/// Tells the browser that a page of this origin may read the answer.
pub(crate) fn expose_to(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.append(VARY, HeaderValue::from_static("origin"));
}

fn refused(detail: &str) -> Failure {
    Failure::new(Code::Forbidden, detail)
}
