//! One call: from a command to the outcome.

use crate::{Failure, error, instance::Instance};
use limina_engine::{Command, Idempotency, Invalid, Millis, Name, Outcome, Page, Request};
use sha2::{Digest, Sha256};
use std::{fmt, sync::Arc, time::Duration};

/// Makes calls in one namespace, under an idempotency key if there is one. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Caller {
    instance: Arc<Instance>,
    namespace: Name,
    idempotency_key: Option<Name>,
}

impl Caller {
    pub(crate) fn new(instance: Arc<Instance>, namespace: Name) -> Caller {
        Caller { instance, namespace, idempotency_key: None }
    }

    pub(crate) fn namespace(&self) -> &Name {
        &self.namespace
    }

    pub(crate) fn service(&self) -> &limina_node::Service {
        &self.instance.service
    }

    pub(crate) fn with_idempotency_key(&self, key: &str) -> Result<Caller, Invalid> {
        Ok(Caller { idempotency_key: Some(error::name("idempotency_key", key)?), ..self.clone() })
    }

    /// Submits a command whose own bytes say what it is.
    pub(crate) async fn call(&self, command: Command) -> Result<Outcome, Failure> {
        let fingerprint = self.fingerprint(|| command.clone());
        self.submit(command, fingerprint).await
    }

    /// Submits a command with newly drawn ids. A retry draws other ids, so the fingerprint covers `plain`: the same command
    /// with ids that are always the same.
    pub(crate) async fn call_drawn(&self, command: Command, plain: Command) -> Result<Outcome, Failure> {
        let fingerprint = self.fingerprint(|| plain);
        self.submit(command, fingerprint).await
    }

    async fn submit(&self, command: Command, fingerprint: Option<[u8; 16]>) -> Result<Outcome, Failure> {
        let idempotency = match (&self.idempotency_key, fingerprint) {
            (Some(key), Some(fingerprint)) if command.is_write() => {
                Some(Idempotency { owner: None, key: key.clone(), fingerprint })
            }
            _ => None,
        };
        let request = Request { idempotency, ..Request::new(self.namespace.clone(), command) };
        Ok(self.instance.service.submit(request).await?)
    }

    /// A hash of the command, by which a different request under the same key is recognized. It differs from the hash of
    /// the same request over HTTP.
    fn fingerprint(&self, command: impl FnOnce() -> Command) -> Option<[u8; 16]> {
        self.idempotency_key.as_ref()?;
        let bytes = postcard::to_allocvec(&command()).expect("a command can be encoded in memory");
        let mut hash = Sha256::new();
        hash.update(b"limina-embed\0");
        hash.update(&bytes);
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&hash.finalize()[..16]);
        Some(fingerprint)
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Caller { instance: _, namespace, idempotency_key } = self;
        f.debug_struct("Caller")
            .field("namespace", namespace)
            .field("idempotency_key", idempotency_key)
            .finish_non_exhaustive()
    }
}

/// The failure in an outcome that is not a family's decision.
pub(crate) fn failure(outcome: &Outcome) -> Failure {
    match outcome {
        Outcome::IdempotencyKeyReused => Failure::IdempotencyKeyReused,
        Outcome::IdempotencyKeyInUse => Failure::IdempotencyKeyInUse,
        Outcome::TooManyWaiting => Failure::Overloaded,
        Outcome::Unreadable => Failure::Unavailable,
        Outcome::AnswerTooLarge { max_bytes } => Failure::AnswerTooLarge { max_bytes: *max_bytes },
        Outcome::Ledger(_)
        | Outcome::Limiter(_)
        | Outcome::Locks(_)
        | Outcome::Events(_)
        | Outcome::Decisions(_)
        | Outcome::NamespaceDeleted
        | Outcome::NamespaceNotFound
        | Outcome::Namespaces(_)
        | Outcome::Audit(_) => mismatched(),
    }
}

/// The outcome of another command. In one process that is a bug. A node of another version may also answer so, and then it
/// is not known what it did.
pub(crate) fn mismatched() -> Failure {
    debug_assert!(false, "a command was answered with the outcome of another one");
    Failure::OutcomeUnknown
}

/// Takes the reply of a command out of the family's enum of all replies.
macro_rules! reply {
    ($reply:expr, $pattern:pat => $value:expr) => {
        match $reply? {
            $pattern => Ok($value),
            _ => Err($crate::Error::Failed($crate::call::mismatched())),
        }
    };
}
pub(crate) use reply;

/// A duration in the engine's unit. A part of a millisecond is dropped.
pub(crate) fn millis(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// A page of a list: at most `limit` items after `after`.
pub(crate) fn page<C: Clone>(after: Option<&C>, limit: usize) -> Result<Page<C>, Invalid> {
    Page::new(after.cloned(), limit)
}
