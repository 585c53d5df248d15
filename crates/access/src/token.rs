//! A token, and the table of all tokens.

use crate::{Exceeded, Hash, Maxima, Need, Permit, Resource, Right, right::Level, time, usage::Usage};
use limina_engine::Name;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

/// One token of the file.
#[derive(Debug)]
pub struct Token {
    /// The name that the audit shows. Several tokens may have the same name, so that a token can be rotated.
    pub name: Name,
    pub(crate) hash: Hash,
    pub(crate) rights: Vec<Right>,
    /// From when on the token is valid, in epoch milliseconds.
    pub(crate) not_before: Option<u64>,
    /// The first instant at which the token is no longer valid, in epoch milliseconds.
    pub(crate) expires: Option<u64>,
    /// Whether the token may record amounts that were used already, beyond what it held.
    pub may_record: bool,
    /// The most that the token may use.
    pub maxima: Maxima,
    pub(crate) usage: Arc<Usage>,
}

impl Token {
    /// Whether one of the rights is enough for the need.
    pub fn allows(&self, need: Need<'_>) -> bool {
        self.rights.iter().any(|right| right.allows(need))
    }

    /// Whether the token has this level in at least one family of the namespace.
    pub fn sees(&self, namespace: &str, level: Level) -> bool {
        self.allows(Need::AnyFamily(namespace, level))
    }

    /// The namespaces in which the token has this level in at least one family, if its rights name each of them. `None` if a right
    /// applies to a pattern of namespaces.
    pub fn named_namespaces(&self, level: Level) -> Option<BTreeSet<&str>> {
        let rights = self.rights.iter().filter(|right| right.allows(Need::Anywhere(level)));
        rights.map(Right::only_namespace).collect()
    }

    /// The prefixes of the namespaces to which rights of this token apply.
    pub fn namespace_prefixes(&self) -> impl Iterator<Item = &str> {
        self.rights.iter().filter_map(Right::namespace_prefix)
    }

    /// Reserves an amount of a resource of which the token may use only so much.
    pub fn take(&self, resource: Resource, amount: u64) -> Result<Permit, Exceeded> {
        self.usage.take(&self.maxima, resource, amount)
    }

    /// Whether the namespace already counts among those that the token may use.
    pub fn has_room_for(&self, namespace: &Name) -> bool {
        self.maxima.namespaces.is_none() || self.usage.knows_namespace(namespace)
    }

    /// Updates the set of namespaces that exist. Fails if the token must not create the wanted one.
    pub fn admit_namespace(&self, existing: HashSet<Name>, wanted: &Name) -> Result<(), Exceeded> {
        let limit = self.maxima.namespaces.unwrap_or(u64::MAX);
        self.usage.admit_namespace(existing, wanted, limit)
    }

    /// Whether this token has taken the permit.
    pub fn has(&self, permit: &Permit) -> bool {
        permit.is_of(&self.usage)
    }

    /// The hash of the token, as the file has it.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// What the token allows.
    pub fn rights(&self) -> &[Right] {
        &self.rights
    }

    /// From when on the token is valid, in epoch milliseconds.
    pub fn not_before(&self) -> Option<u64> {
        self.not_before
    }

    /// The first instant at which the token is no longer valid, in epoch milliseconds.
    pub fn expires(&self) -> Option<u64> {
        self.expires
    }

    pub(crate) fn is_valid_at(&self, now: u64) -> bool {
        self.not_before.is_none_or(|at| at <= now) && self.expires.is_none_or(|at| now < at)
    }

    /// Whether the token is valid now, by the clock of the system.
    pub fn is_valid(&self) -> bool {
        (self.not_before.is_none() && self.expires.is_none()) || self.is_valid_at(time::now())
    }
}

/// All tokens of a file.
#[derive(Debug, Default)]
pub struct Tokens(pub(crate) HashMap<Hash, Arc<Token>>);

impl Tokens {
    /// How many there are, the expired ones included.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All tokens, the expired ones included, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Token> {
        self.0.values().map(|token| &**token)
    }

    /// Carries over the usage of the tokens in the previous table.
    pub(crate) fn inherit_usage(&mut self, before: &Tokens) {
        for (hash, token) in &mut self.0 {
            if let (Some(old), Some(token)) = (before.0.get(hash), Arc::get_mut(token)) {
                token.usage = old.usage.clone();
            }
        }
    }
}
