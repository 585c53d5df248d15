//! Reads the file of tokens: TOML, with a table `[[token]]` for each.

use crate::{Hash, Maxima, Right, Token, Tokens, time, usage::Usage};
use limina_engine::Name;
use serde::Deserialize;
use std::{collections::hash_map::Entry, fmt, num::NonZeroU32, sync::Arc};
use toml::{Spanned, value::Datetime};

/// An error in a file of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub detail: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.detail)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Entrance>,
}

/// One `[[token]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entrance {
    name: Spanned<String>,
    sha256: Spanned<String>,
    allow: Spanned<Vec<Spanned<String>>>,
    expires: Option<Spanned<Datetime>>,
    not_before: Option<Spanned<Datetime>>,
    #[serde(default = "yes")]
    record: bool,
    max_connections: Option<NonZeroU32>,
    max_in_flight_mib: Option<NonZeroU32>,
    max_streams: Option<NonZeroU32>,
    max_waits: Option<NonZeroU32>,
    max_refusal_streams: Option<NonZeroU32>,
    max_namespaces: Option<NonZeroU32>,
}

fn yes() -> bool {
    true
}

/// Reads a whole file. A file without a token is an error: it would admit no client, and may be a file that is still
/// being written.
pub fn parse(text: &str) -> Result<Tokens, Vec<Problem>> {
    let line_at = |at: usize| text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
    let file: File = toml::from_str(text).map_err(|error| {
        let line = line_at(error.span().map_or(text.len(), |span| span.start));
        vec![Problem { line, detail: error.message().replace('\n', " ") }]
    })?;
    let mut problems = Vec::new();
    let mut tokens = Tokens::default();
    for entrance in file.token {
        let line = line_at(entrance.sha256.span().start);
        let token = entrance.check(&mut |at, field: &str, detail: String| {
            problems.push(Problem { line: line_at(at), detail: format!("`{field}` {detail}") });
        });
        let Some(token) = token else { continue };
        match tokens.0.entry(token.hash) {
            Entry::Vacant(free) => {
                free.insert(Arc::new(token));
            }
            Entry::Occupied(_) => {
                problems.push(Problem { line, detail: "`sha256` is that of an earlier token".to_owned() })
            }
        }
    }
    if tokens.is_empty() && problems.is_empty() {
        problems.push(Problem { line: 1, detail: "the file has no [[token]]".to_owned() });
    }
    if problems.is_empty() { Ok(tokens) } else { Err(problems) }
}

impl Entrance {
    /// The token, or `None` after `problem` was called with the place, the field and the reason of each mistake.
    fn check(self, problem: &mut dyn FnMut(usize, &str, String)) -> Option<Token> {
        let mut is_valid = true;
        let mut wrong = |at: usize, field: &str, detail: String| {
            is_valid = false;
            problem(at, field, detail);
        };
        let name = Name::new(self.name.get_ref())
            .map_err(|error| wrong(self.name.span().start, "name", error.to_string()));
        let hash = self.sha256.get_ref().parse::<Hash>();
        let hash = hash.map_err(|shape| wrong(self.sha256.span().start, "sha256", shape.to_owned()));
        let mut rights = Vec::new();
        for text in self.allow.get_ref() {
            match text.get_ref().parse::<Right>() {
                Ok(right) => rights.push(right),
                Err(error) => wrong(text.span().start, "allow", format!("is not valid: {error}")),
            }
        }
        if self.allow.get_ref().is_empty() {
            wrong(self.allow.span().start, "allow", "must contain at least one right".to_owned());
        }
        let mut instant = |field: &str, value: &Option<Spanned<Datetime>>| {
            let value = value.as_ref()?;
            let instant = time::instant(value.get_ref());
            instant.map_err(|shape| wrong(value.span().start, field, shape.to_owned())).ok()
        };
        let (not_before, expires) =
            (instant("not_before", &self.not_before), instant("expires", &self.expires));
        if let (Some(begin), Some(end), Some(at)) = (not_before, expires, &self.expires)
            && end <= begin
        {
            wrong(at.span().start, "expires", "must be after `not_before`".to_owned());
        }
        let max = |max: Option<NonZeroU32>| max.map(|max| u64::from(max.get()));
        let maxima = Maxima {
            connections: max(self.max_connections),
            in_flight_bytes: max(self.max_in_flight_mib).map(|mib| mib << 20),
            streams: max(self.max_streams),
            waits: max(self.max_waits),
            refusal_streams: max(self.max_refusal_streams),
            namespaces: max(self.max_namespaces),
        };
        let (Ok(name), Ok(hash), true) = (name, hash, is_valid) else { return None };
        let usage = Arc::<Usage>::default();
        Some(Token { name, hash, rights, not_before, expires, may_record: self.record, maxima, usage })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Need;

    const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_whole_file() {
        let text = format!(
            "# comment\n[[token]]\nname = \"shop\"\nsha256 = \"{HASH}\"\nallow = [\"shop-*/limiter:use\", \"cluster:read\"]\n\
             expires = 2999-01-01T00:00:00Z\nrecord = false\nmax_connections = 10\nmax_in_flight_mib = 64\n\
             max_streams = 3\nmax_waits = 4\nmax_refusal_streams = 2\nmax_namespaces = 5\n"
        );
        let tokens = parse(&text).unwrap();
        let token = tokens.0.values().next().unwrap();
        assert_eq!((token.name.as_str(), token.may_record), ("shop", false));
        assert_eq!((token.maxima.in_flight_bytes, token.maxima.refusal_streams), (Some(64 << 20), Some(2)));
        assert!(token.allows(Need::ClusterRead) && token.sees("shop-eu", crate::Level::Use));
        assert!(!token.sees("other", crate::Level::Read));
    }

    #[test]
    fn namespaces_are_known_if_each_is_named() {
        #[track_caller]
        fn check(rights: &[&str], expect: Option<&[&str]>) {
            let text = format!("[[token]]\nname = \"a\"\nsha256 = \"{HASH}\"\nallow = {rights:?}");
            let tokens = parse(&text).unwrap();
            let named = tokens.iter().next().unwrap().named_namespaces(crate::Level::Manage);
            assert_eq!(named, expect.map(|names| names.iter().copied().collect()), "{rights:?}");
        }
        check(&["b/*:manage", "a/locks:manage", "b/limiter:manage"], Some(&["a", "b"]));
        check(&["a/*:manage", "b*/*:use", "cluster:read"], Some(&["a"]));
        check(&["a/*:manage", "b*/*:manage"], None);
        check(&["a/*:manage", "cluster:admin"], None);
        check(&["*/*:use"], Some(&[]));
    }

    #[test]
    fn mistakes_are_reported_with_their_lines() {
        #[track_caller]
        fn check(text: &str, expect: &[&str]) {
            let told: Vec<String> = parse(text).unwrap_err().iter().map(Problem::to_string).collect();
            assert_eq!(told.len(), expect.len(), "{told:#?}");
            for (told, expect) in told.iter().zip(expect) {
                assert!(told.starts_with(expect), "{told:?} does not begin with {expect:?}");
            }
        }
        let token = |rest: &str| format!("[[token]]\nname = \"a\"\nsha256 = \"{HASH}\"\n{rest}\n");
        check("", &["line 1: the file has no [[token]]"]);
        check("[[token]\n", &["line 1: "]);
        check("[[tokens]]\n", &["line 1: unknown field `tokens`"]);
        check(
            "[[token]]\nname = \"a\"\nsha256 = \"x\"\nallow = []",
            &["line 3: `sha256` must be the 64", "line 4: `allow` must contain"],
        );
        check("\n[[token]]\nname = \"a\"\nallow = []", &["line 2: missing field `sha256`"]);
        check(&token("alow = []"), &["line 4: unknown field `alow`"]);
        check(
            &token("allow = [\n  \"a/*:use\",\n  \"a/*:write\",\n]"),
            &["line 6: `allow` is not valid: \"a/*:write\" is not a right"],
        );
        check(
            &token("allow = [\"a/*:use\"]\nexpires = 2027-01-01T00:00:00"),
            &["line 5: `expires` must be a date"],
        );
        check(
            &token("allow = [\"a/*:use\"]\nexpires = 2027-01-01\nnot_before = 2027-01-01"),
            &["line 5: `expires` must be after"],
        );
        check(&token("allow = [\"a/*:use\"]\nmax_streams = 0"), &["line 5: "]);
        check(&token("allow = [\"a/*:use\"]\nmax_streams = -1"), &["line 5: "]);
        check(
            &(token("allow = [\"a/*:use\"]") + &token("allow = [\"b/*:use\"]")),
            &["line 7: `sha256` is that of an earlier token"],
        );
        check(
            &token("allow = [\"a/*:use\"]").replace("\"a\"", "\"\""),
            &["line 2: `name` must not be empty"],
        );
    }
}
