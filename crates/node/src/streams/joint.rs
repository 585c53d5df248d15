//! One question for many followers that ask it at the same time.

use super::FollowError;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use std::sync::{Arc, Mutex, PoisonError};

type Question<T> = BoxFuture<'static, Result<T, FollowError>>;

/// The answer that several followers wait for.
pub(super) type Awaited<T> = Shared<Question<T>>;

/// A question that one follower asks for all. A follower must not get the answer to a question that was asked before it
/// came, since that answer may be older than what its client knows. So those who come while a question is under way
/// share the next one.
pub(super) struct Joint<T: Clone> {
    /// The question that nobody has begun to ask yet. It is held by those who wait for it.
    next: Mutex<Option<WeakShared<Question<T>>>>,
    turn: tokio::sync::Mutex<()>,
}

impl<T: Clone> Default for Joint<T> {
    fn default() -> Joint<T> {
        Joint { next: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }
}

impl<T: Clone + Send + Sync + 'static> Joint<T> {
    /// Asks, or joins those who are about to.
    pub(super) fn ask<F>(self: &Arc<Self>, question: impl FnOnce() -> F) -> Awaited<T>
    where
        F: Future<Output = Result<T, FollowError>> + Send + 'static,
    {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(awaited) = next.as_ref().and_then(WeakShared::upgrade) {
            return awaited;
        }
        let (this, question) = (self.clone(), question());
        let asking = async move {
            let _turn = this.turn.lock().await;
            this.next.lock().unwrap_or_else(PoisonError::into_inner).take();
            question.await
        };
        let awaited = asking.boxed().shared();
        *next = awaited.downgrade();
        awaited
    }
}
