//! Finds the endpoint of a request: by its path, then by its method. An endpoint is only a number here.

use axum::http::{HeaderValue, Method};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// All paths of a listener, with the numbers of their endpoints.
pub(super) struct Router {
    paths: matchit::Router<usize>,
    patterns: Vec<Pattern>,
    method_not_allowed: usize,
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

/// The endpoint of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) endpoint: usize,
    /// The index of the pattern. None if no pattern matches the path.
    pattern: Option<usize>,
}

/// A parameter of a path is not UTF-8 when it is percent-decoded.
pub(super) struct NotUtf8<'a> {
    pub(super) parameter: &'a str,
}

impl Router {
    /// A router without paths. The arguments are the endpoints of requests with a method that their path does not have, and of
    /// requests with an unknown path.
    pub(super) fn new(method_not_allowed: usize, not_found: usize) -> Router {
        Router { paths: matchit::Router::new(), patterns: Vec::new(), method_not_allowed, not_found }
    }

    /// Adds the endpoint of a path with one method.
    pub(super) fn add(&mut self, path: String, method: Method, endpoint: usize) {
        let known = self.patterns.iter().position(|pattern| pattern.text == path);
        let index = known.unwrap_or_else(|| self.add_pattern(path, self.method_not_allowed));
        let Pattern { methods, allow, .. } = &mut self.patterns[index];
        assert!(methods.iter().all(|(other, _)| *other != method), "a path has a method once");
        methods.push((method, endpoint));
        let words = methods.iter().map(|(method, _)| match *method {
            Method::GET => "GET,HEAD",
            ref other => other.as_str(),
        });
        let words: Vec<&str> = words.collect();
        *allow = Some(words.join(",").try_into().expect("methods are tokens"));
    }

    /// Adds the endpoint of a path that treats all methods alike.
    pub(super) fn add_for_all_methods(&mut self, path: String, endpoint: usize) {
        self.add_pattern(path, endpoint);
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
