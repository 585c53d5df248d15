//! Who asks, from where, and in which request.

use super::Needs;
use crate::http::problem::{Code, Failure};
use limina_access::{Access, Exceeded, Family, Level, Need, Permit, Resource, Token};
use limina_engine::{Caller, Name};
use std::{ops::Deref, sync::Arc};

/// Who asks, from where, and in which request. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Identity {
    /// `None` if the server has no tokens. Then everything is allowed.
    entry: Option<Entry>,
    caller: Caller,
}

/// A token, and the table that says whether it is still valid.
#[derive(Debug, Clone)]
struct Entry {
    access: Access,
    token: Arc<Token>,
}

impl Identity {
    /// A client of a server without tokens.
    pub(crate) fn anyone(caller: Caller) -> Identity {
        Identity { entry: None, caller }
    }

    pub(crate) fn new(access: Access, token: Arc<Token>, caller: Caller) -> Identity {
        let caller = Caller { actor: Some(token.name.clone()), ..caller };
        Identity { entry: Some(Entry { access, token }), caller }
    }

    /// For the audit and the log.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The name of the token.
    pub(crate) fn actor(&self) -> Option<&Name> {
        self.caller.actor.as_ref()
    }

    pub(crate) fn token(&self) -> Option<&Token> {
        self.entry.as_ref().map(|entry| &*entry.token)
    }

    /// Whether the request may pass. The token may have become invalid since it was presented, on a long connection.
    pub(crate) fn allows(&self, need: Need<'_>) -> bool {
        self.entry.as_ref().is_none_or(|entry| entry.access.still_allows(&entry.token, need))
    }

    /// Fails with 403 if the right is missing.
    pub(crate) fn require(&self, need: Need<'_>) -> Result<(), Failure> {
        if self.token().is_none_or(|token| token.allows(need)) { Ok(()) } else { Err(forbidden(need)) }
    }

    /// Fails with 403 if the token must not record what has happened past its limits.
    pub(crate) fn require_record(&self) -> Result<(), Failure> {
        match self.token() {
            Some(token) if !token.may_record => {
                let detail = "The token must not `record`: its entry has `record = false`.";
                Err(Failure::new(Code::Forbidden, detail).with("needs", "record"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the token has this level in at least one family of the namespace.
    pub(crate) fn sees(&self, namespace: &str, level: Level) -> bool {
        self.token().is_none_or(|token| token.sees(namespace, level))
    }

    /// Returns when the token is no longer valid, or has lost one of the rights, with the answer to its request.
    pub(crate) async fn until_denied<'a>(&self, needs: impl AsRef<[Need<'a>]>) -> Failure {
        match &self.entry {
            Some(entry) => match entry.access.until_denied(&entry.token, needs).await {
                Some(lost) => forbidden(lost),
                None => unauthorized(true),
            },
            None => std::future::pending().await,
        }
    }

    /// Takes one of what the token may use only so much of, or fails with 503.
    pub(crate) fn take(&self, resource: Resource) -> Result<Option<Permit>, Failure> {
        let Some(token) = self.token() else { return Ok(None) };
        token.take(resource, 1).map(Some).map_err(|exceeded| token_overloaded(resource, exceeded))
    }
}

/// What a request is about: a namespace, and who asks. A handler gets it only after the guard has let the request pass.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) namespace: Name,
    pub(crate) identity: Identity,
    /// The family of the route, if it belongs to one.
    family: Option<Family>,
}

impl Scope {
    pub(crate) fn new(namespace: Name, identity: Identity) -> Scope {
        Scope { namespace, identity, family: None }
    }

    pub(super) fn of_route(namespace: Name, identity: Identity, needs: Needs) -> Scope {
        let family = match needs {
            Needs::Family(family, _) => Some(family),
            _ => None,
        };
        Scope { namespace, identity, family }
    }

    /// Fails with 403 if the client does not have this level in the family, for requests that also touch other families than
    /// that of their route.
    pub(crate) fn require_in(&self, family: Family, level: Level) -> Result<(), Failure> {
        self.identity.require(Need::Family(self.namespace.as_str(), family, level))
    }

    /// Fails with 403 if the client does not have this level in the family of the route, for requests that need more than
    /// others of their route.
    pub(crate) fn require(&self, level: Level) -> Result<(), Failure> {
        self.identity.require(self.need(level))
    }

    /// This level in the family of the route.
    pub(crate) fn need(&self, level: Level) -> Need<'_> {
        let namespace = self.namespace.as_str();
        match self.family {
            Some(family) => Need::Family(namespace, family, level),
            None => Need::Namespace(namespace, level),
        }
    }
}

impl Deref for Scope {
    type Target = Name;

    fn deref(&self) -> &Name {
        &self.namespace
    }
}

/// The answer to a request without a valid token.
pub(crate) fn unauthorized(is_presented: bool) -> Failure {
    Failure::new(
        Code::Unauthorized,
        match is_presented {
            true => "The token is not known, has expired, or is not valid yet.",
            false => "The request needs a token: send the header `Authorization: Bearer TOKEN`.",
        },
    )
}

/// The answer to a request whose token lacks a right.
pub(crate) fn forbidden(need: Need<'_>) -> Failure {
    let needs = need.to_string();
    Failure::new(Code::Forbidden, format!("The token does not have the right {needs}.")).with("needs", needs)
}

/// The answer to a request whose token uses as much as it may.
pub(crate) fn token_overloaded(resource: Resource, exceeded: Exceeded) -> Failure {
    let Exceeded { limit } = exceeded;
    let detail = match resource {
        Resource::Connections => format!("The token has its maximum of {limit} connections."),
        Resource::InFlightBytes => format!("The requests of the token take their maximum of {limit} bytes."),
        Resource::Streams => format!("The token follows its maximum of {limit} streams."),
        Resource::Waits => format!("The token has its maximum of {limit} waiting requests."),
        Resource::RefusalStreams => format!("The token follows its maximum of {limit} streams of refusals."),
    };
    Failure::new(Code::Overloaded, format!("{detail} Nothing was done."))
}
