//! Finds the endpoint of a request: by its path, then by its method.

use super::{App, metrics::Recorder};
use crate::access::Guard;
use axum::{
    extract::Request,
    http::{HeaderValue, Method},
    response::Response,
};
use percent_encoding::percent_decode_str;
use std::{borrow::Cow, collections::HashMap, pin::Pin, sync::Arc};

/// The future of an answer.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler with its extractors.
pub(crate) type Handle = Box<dyn Fn(Request, App) -> Answer + Send + Sync>;

/// What answers the requests of one path with one method.
pub(super) struct Endpoint {
    pub(super) guard: Guard,
    pub(super) recorder: Arc<Recorder>,
    pub(super) handler: Handle,
    /// Whether answers get the form of gRPC.
    pub(super) is_grpc: bool,
}

/// All endpoints of a listener.
pub(super) struct Router {
    paths: matchit::Router<usize>,
    patterns: Vec<Pattern>,
    endpoints: Vec<Endpoint>,
    not_found: usize,
}

/// A path with parameters in braces, such as `/v1/ns/{namespace}/ledger/limits/{name}`.
struct Pattern {
    text: String,
    has_parameters: bool,
    methods: Vec<(Method, usize)>,
    /// The endpoint of all other methods.
    others: usize,
    /// The header `Allow` of answers to other methods.
    allow: Option<HeaderValue>,
}

/// The endpoint of a request. Both numbers are indexes of [`Router`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    endpoint: usize,
    /// None if no pattern matches the path.
    pattern: Option<usize>,
}

/// A parameter of a path is not UTF-8 when it is percent-decoded.
pub(super) struct NotUtf8<'a> {
    pub(super) parameter: &'a str,
}

impl Router {
    /// `paths` are the endpoints by path and method; `all_methods` those of paths that treat all methods alike.
    pub(super) fn new(
        paths: Vec<(String, Method, Endpoint)>,
        all_methods: Vec<(String, Endpoint)>,
        method_not_allowed: Endpoint,
        not_found: Endpoint,
    ) -> Router {
        let mut router = Router {
            paths: matchit::Router::new(),
            patterns: Vec::new(),
            endpoints: vec![method_not_allowed, not_found],
            not_found: 1,
        };
        let mut by_text = HashMap::new();
        for (text, method, endpoint) in paths {
            let index = *by_text.entry(text.clone()).or_insert_with(|| router.add_pattern(text, 0));
            let endpoint = router.add(endpoint);
            let methods = &mut router.patterns[index].methods;
            assert!(methods.iter().all(|(other, _)| *other != method), "a path has a method once");
            methods.push((method, endpoint));
        }
        for pattern in &mut router.patterns {
            let words = pattern.methods.iter().map(|(method, _)| match *method {
                Method::GET => "GET,HEAD",
                ref other => other.as_str(),
            });
            let words: Vec<&str> = words.collect();
            pattern.allow = Some(words.join(",").try_into().expect("methods are tokens"));
        }
        for (text, endpoint) in all_methods {
            let endpoint = router.add(endpoint);
            router.add_pattern(text, endpoint);
        }
        router
    }

    fn add(&mut self, endpoint: Endpoint) -> usize {
        self.endpoints.push(endpoint);
        self.endpoints.len() - 1
    }

    fn add_pattern(&mut self, text: String, others: usize) -> usize {
        let index = self.patterns.len();
        self.paths.insert(text.as_str(), index).expect("patterns are valid and do not conflict");
        let has_parameters = text.contains('{');
        self.patterns.push(Pattern { text, has_parameters, methods: Vec::new(), others, allow: None });
        index
    }

    pub(super) fn find(&self, method: &Method, path: &str) -> Found {
        let Ok(matched) = self.paths.at(path) else {
            return Found { endpoint: self.not_found, pattern: None };
        };
        let index = *matched.value;
        let Pattern { methods, others, .. } = &self.patterns[index];
        let of_method = |wanted: &Method| methods.iter().find(|(method, _)| method == wanted);
        let found = match of_method(method) {
            None if *method == Method::HEAD => of_method(&Method::GET),
            found => found,
        };
        Found { endpoint: found.map_or(*others, |(_, endpoint)| *endpoint), pattern: Some(index) }
    }

    pub(super) fn endpoint(&self, found: Found) -> &Endpoint {
        &self.endpoints[found.endpoint]
    }

    /// The header `Allow` of the answer, if the path does not have the method of the request.
    pub(super) fn allow(&self, found: Found) -> Option<&HeaderValue> {
        let pattern = &self.patterns[found.pattern?];
        pattern.allow.as_ref().filter(|_| found.endpoint == pattern.others)
    }

    /// The decoded value of a parameter in the path; `None` if the pattern has no such parameter. Fails if any parameter of
    /// the path cannot be decoded.
    pub(super) fn parameter<'p>(
        &self,
        found: Found,
        path: &'p str,
        parameter: &str,
    ) -> Result<Option<Cow<'p, str>>, NotUtf8<'_>> {
        let pattern = found.pattern.map(|index| &self.patterns[index]);
        let Some(pattern) = pattern.filter(|pattern| pattern.has_parameters) else { return Ok(None) };
        let mut value = None;
        let mut rest = path;
        for segment in pattern.text.split('/') {
            let (own, behind) = rest.split_once('/').unwrap_or((rest, ""));
            if let Some(name) = segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                let (name, text) = match name.strip_prefix('*') {
                    Some(name) => (name, rest),
                    None => (name, own),
                };
                let decoded = percent_decode_str(text).decode_utf8();
                let decoded = decoded.map_err(|_| NotUtf8 { parameter: name })?;
                if name == parameter {
                    value = Some(decoded);
                }
            }
            rest = behind;
        }
        Ok(value)
    }
}
