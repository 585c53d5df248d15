//! What one connection follows.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use limina_node::{Ended, Follower};
use limina_stomp::Subscription;
use std::{
    future::poll_fn,
    task::{Context, Poll},
};
use tokio::sync::broadcast::{Receiver, error::RecvError};

/// The subscriptions of a connection. Each has one future, which gives the next payloads for it.
#[derive(Default)]
pub(super) struct Following {
    sources: Vec<(Subscription, BoxFuture<'static, (Source, Next)>)>,
    /// Whose turn it is, so that a busy stream does not keep others waiting.
    turn: usize,
}

/// Where payloads come from.
pub(super) enum Source {
    Stream(Box<Follower>),
    Time(Receiver<Bytes>),
}

/// What is to be sent, or why nothing more will be.
pub(super) type Next = Result<Vec<Bytes>, Ended>;

impl Following {
    pub(super) fn add(&mut self, subscription: Subscription, source: Source) {
        self.sources.push((subscription, Box::pin(source.next())));
    }

    pub(super) fn remove(&mut self, subscription: Subscription) {
        self.sources.retain(|(other, _)| *other != subscription);
    }

    /// The next payloads for any of them; waits for ever if there are none.
    pub(super) async fn next(&mut self) -> (Subscription, Next) {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<(Subscription, Next)> {
        let count = self.sources.len();
        for place in (0..count).map(|offset| (self.turn + offset) % count) {
            let (subscription, future) = &mut self.sources[place];
            if let Poll::Ready((source, next)) = future.as_mut().poll(context) {
                let subscription = *subscription;
                self.turn = place + 1;
                match next.is_ok() {
                    true => self.sources[place].1 = Box::pin(source.next()),
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
            Source::Stream(follower) => follower.next().await.map(|messages| {
                messages.iter().map(|message| message.encoded(crate::http::events::encode).clone()).collect()
            }),
            Source::Time(receiver) => loop {
                match receiver.recv().await {
                    Ok(payload) => break Ok(vec![payload]),
                    // An old time is of no use to anybody.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => break std::future::pending().await,
                }
            },
        };
        (self, next)
    }
}
