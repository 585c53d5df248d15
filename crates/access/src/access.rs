//! The tokens that are valid now, followed while the server runs.

use crate::{Hash, Need, Token, Tokens, time};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::watch;

/// The tokens that are valid now. A clone is the same table.
#[derive(Debug, Clone)]
pub struct Access(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    tokens: watch::Sender<Arc<Tokens>>,
    /// The tokens that were valid at the last [`Access::tick`].
    valid: Mutex<HashSet<Hash>>,
}

impl Access {
    /// Begins with these tokens.
    pub fn new(tokens: Tokens) -> Access {
        let valid = Mutex::new(valid_at(&tokens, time::now()));
        Access(Arc::new(Shared { tokens: watch::Sender::new(Arc::new(tokens)), valid }))
    }

    /// Replaces all tokens. A token that stays keeps what it uses.
    pub fn replace(&self, mut tokens: Tokens) {
        tokens.inherit_usage(&self.0.tokens.borrow());
        self.0.tokens.send_replace(Arc::new(tokens));
    }

    /// The token that a client presents, if it is valid now.
    pub fn find(&self, presented: &[u8]) -> Option<Arc<Token>> {
        self.current(Hash::of(presented))
    }

    /// Notices tokens that have expired since the last call, and ends what they follow and wait for. Call it about once a
    /// second.
    pub fn tick(&self) {
        self.tick_at(time::now());
    }

    fn tick_at(&self, now: u64) {
        let valid = valid_at(&self.0.tokens.borrow(), now);
        let mut before = self.0.valid.lock().unwrap_or_else(PoisonError::into_inner);
        if *before != valid {
            *before = valid;
            self.0.tokens.send_modify(|_| {});
        }
    }

    /// Returns when the token has lost one of the rights, with that right, or when it is gone or has expired, with `None`. It is
    /// noticed when the file changes, and at each [`Access::tick`].
    pub async fn until_denied<'a>(&self, token: &Token, needs: impl AsRef<[Need<'a>]>) -> Option<Need<'a>> {
        let mut changes = self.0.tokens.subscribe();
        loop {
            let current = self.current(token.hash)?;
            if let Some(lost) = needs.as_ref().iter().find(|need| !current.allows(**need)) {
                return Some(*lost);
            }
            changes.changed().await.ok()?;
        }
    }

    /// Whether the token is still valid and still has the right.
    pub fn still_allows(&self, token: &Token, need: Need<'_>) -> bool {
        self.current(token.hash).is_some_and(|current| current.allows(need))
    }

    fn current(&self, hash: Hash) -> Option<Arc<Token>> {
        let found = self.0.tokens.borrow().0.get(&hash).cloned();
        found.filter(|token| token.is_valid())
    }
}

fn valid_at(tokens: &Tokens, now: u64) -> HashSet<Hash> {
    tokens.0.values().filter(|token| token.is_valid_at(now)).map(|token| token.hash).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Family, Level, Resource, Secret, parse};

    fn file(secret: &Secret, rest: &str) -> Tokens {
        let text = format!("[[token]]\nname = \"t\"\nsha256 = \"{}\"\n{rest}", secret.hash());
        parse(&text).unwrap()
    }

    #[tokio::test]
    async fn a_removed_token_and_a_lost_right_end_what_is_open() {
        let secret = Secret::draw().unwrap();
        let need = Need::Family("n", Family::Events, Level::Read);
        let full = "allow = [\"*/*:use\"]\nmax_streams = 1";
        for (changed, lost) in [("allow = [\"other/*:use\"]", Some(need)), ("", None)] {
            let access = Access::new(file(&secret, full));
            let token = access.find(secret.text().as_bytes()).unwrap();
            let denied = tokio::spawn({
                let (access, token) = (access.clone(), token.clone());
                async move { access.until_denied(&token, [need]).await }
            });
            let permit = token.take(Resource::Streams, 1).unwrap();
            // The same token again changes nothing, and its usage counts on.
            access.replace(file(&secret, full));
            assert!(access.still_allows(&token, need));
            let again = access.find(secret.text().as_bytes()).unwrap();
            assert_eq!(again.take(Resource::Streams, 1).unwrap_err().limit, 1);
            drop(permit);
            again.take(Resource::Streams, 1).unwrap();
            access.replace(if changed.is_empty() { Tokens::default() } else { file(&secret, changed) });
            assert_eq!(denied.await.unwrap(), lost);
        }
    }

    #[tokio::test]
    async fn an_expired_token_ends_what_is_open() {
        let secret = Secret::draw().unwrap();
        let access = Access::new(file(&secret, "allow = [\"*/*:use\"]\nexpires = 1970-01-02"));
        assert!(access.find(secret.text().as_bytes()).is_none());
        let changes = access.0.tokens.subscribe();
        // At the beginning of 1970 it was valid, at the end of that day it is not.
        for (now, expect) in [(1, true), (86_399_999, false), (86_400_000, true), (86_400_001, false)] {
            let mut changes = changes.clone();
            changes.mark_unchanged();
            access.tick_at(now);
            assert_eq!(changes.has_changed().unwrap(), expect, "at {now}");
        }
    }

    #[test]
    fn a_token_is_not_valid_before_its_time() {
        let secret = Secret::draw().unwrap();
        let access = Access::new(file(&secret, "allow = [\"*/*:use\"]\nnot_before = 9999-01-01"));
        assert!(access.find(secret.text().as_bytes()).is_none());
        let access = Access::new(file(&secret, "allow = [\"*/*:use\"]\nnot_before = 2020-01-01T00:00:00Z"));
        assert!(access.find(secret.text().as_bytes()).is_some());
        assert!(access.find(b"limina_another").is_none());
    }
}
