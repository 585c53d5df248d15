//! One question to the shard for many followers that ask it at the same time.

use super::FollowError;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use std::sync::{Arc, Mutex, PoisonError};

type Question<T> = BoxFuture<'static, Result<T, FollowError>>;

/// An answer that several followers wait for.
pub(super) type SharedAnswer<T> = Shared<Question<T>>;

/// A question that one follower asks for all. A follower must not get the answer to a question that was sent before the
/// follower came, because that answer may be older than what its client has. So followers that come while a question is
/// under way share the next one.
pub(super) struct SharedQuestion<T: Clone> {
    /// The question that was not sent yet. The followers that wait for it keep it alive.
    next: Mutex<Option<WeakShared<Question<T>>>>,
    turn: tokio::sync::Mutex<()>,
}

impl<T: Clone> Default for SharedQuestion<T> {
    fn default() -> SharedQuestion<T> {
        SharedQuestion { next: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }
}

impl<T: Clone + Send + Sync + 'static> SharedQuestion<T> {
    /// Asks, or joins the followers whose question was not sent yet.
    pub(super) fn ask<F>(self: &Arc<Self>, question: impl FnOnce() -> F) -> SharedAnswer<T>
    where
        F: Future<Output = Result<T, FollowError>> + Send + 'static,
    {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = next.as_ref().and_then(WeakShared::upgrade) {
            return answer;
        }
        let (this, question) = (self.clone(), question());
        let asking = async move {
            let _turn = this.turn.lock().await;
            this.next.lock().unwrap_or_else(PoisonError::into_inner).take();
            question.await
        };
        let answer = asking.boxed().shared();
        *next = answer.downgrade();
        answer
    }
}
