//! The subscriptions of one connection.

use crate::{
    access::Scope,
    http::{
        following::{LARGE, encode, right_to_follow},
        problem::Failure,
    },
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use limina_access::Permit;
use limina_node::{Ended, Follower, Message};
use limina_stomp::Subscription;
use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::sync::broadcast::{Receiver, error::RecvError};

/// The subscriptions of a connection. Each has one future, which returns its next payloads.
#[derive(Default)]
pub(super) struct Subscriptions {
    sources: Vec<(Subscription, BoxFuture<'static, (Source, Next)>)>,
    /// The index of the subscription that is polled first, so that a busy stream does not starve others.
    first: usize,
}

/// The source of a subscription's payloads.
pub(super) enum Source {
    Stream(Box<Followed>),
    Time(Receiver<Bytes>),
}

/// A stream that a client follows.
pub(super) struct Followed {
    pub(super) follower: Follower,
    /// The namespace of the stream, and the client.
    pub(super) scope: Scope,
    /// Counts the subscription for the client's token.
    pub(super) _permit: Option<Permit>,
}

/// The next payloads, or why there are no more.
pub(super) type Next = Result<Vec<Bytes>, Stop>;

/// Why a subscription ends.
pub(super) enum Stop {
    Ended(Ended),
    /// The client's token is no longer valid, or has lost the right.
    Denied(Failure),
}

impl Subscriptions {
    pub(super) fn add(&mut self, subscription: Subscription, source: Source) {
        self.sources.push((subscription, Box::pin(source.next())));
    }

    pub(super) fn remove(&mut self, subscription: Subscription) {
        self.sources.retain(|(other, _)| *other != subscription);
    }

    /// Returns the next payloads of any subscription. Waits forever if there is none.
    pub(super) async fn next(&mut self) -> (Subscription, Next) {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<(Subscription, Next)> {
        let count = self.sources.len();
        for index in (0..count).map(|offset| (self.first + offset) % count) {
            let (subscription, future) = &mut self.sources[index];
            if let Poll::Ready((source, next)) = future.as_mut().poll(context) {
                let subscription = *subscription;
                self.first = index + 1;
                match next.is_ok() {
                    true => self.sources[index].1 = Box::pin(source.next()),
                    false => self.remove(subscription),
                }
                return Poll::Ready((subscription, next));
            }
        }
        Poll::Pending
    }
}

impl Source {
    async fn next(mut self) -> (Source, Next) {
        let next = match &mut self {
            Source::Stream(followed) => {
                let Followed { follower, scope, .. } = &mut **followed;
                tokio::select! {
                    biased;
                    denial = scope.identity.until_denied([right_to_follow(&scope.namespace)]) => {
                        Err(Stop::Denied(denial))
                    }
                    next = follower.next() => match next {
                        Ok(messages) => Ok(messages.iter().map(payload).collect()),
                        Err(ended) => Err(Stop::Ended(ended)),
                    },
                }
            }
            Source::Time(receiver) => loop {
                match receiver.recv().await {
                    Ok(payload) => break Ok(vec![payload]),
                    // Messages with an old time are useless, so lost ones do not matter.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => break std::future::pending().await,
                }
            },
        };
        (self, next)
    }
}

fn payload(message: &Arc<Message>) -> Bytes {
    let encoded = message.encoded(encode).clone();
    if encoded.len() > LARGE { message.keep_with(encoded) } else { encoded }
}
