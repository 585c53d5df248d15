//! How the ring of a stream is fed, wherever the stream's shard is.

use super::{Ended, FollowError, Told, Topic};
use crate::{FeedEnded, Service, Unavailable, Wanted, service::Location};
use limina_store::ShardId;
use std::{sync::Weak, time::Duration};

/// How long to wait before another node is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Feeds the ring, from wherever the stream's shard is, for as long as anybody follows.
pub(super) async fn feed(service: Service, topic: Weak<Topic>, mut every: Duration) {
    let Some(address) = topic.upgrade().map(|topic| topic.address.clone()) else { return };
    let Some((shard, mut whereabouts)) = service.watch(&address.0) else { return };
    loop {
        let at = whereabouts.borrow_and_update().clone();
        let feeding = async {
            match at {
                // The shard's effects go into the ring without a feed.
                Location::Local(_) => feed_from_here(&service, &topic, &mut every).await,
                Location::Remote(other) => feed_from(&service, &topic, shard, &other).await,
                Location::Unknown => std::future::pending().await,
                Location::Failed => {
                    let Some(topic) = topic.upgrade() else { return };
                    topic.tell(|state| {
                        state.ended = Some(Ended::Unavailable(Unavailable::ShardUnavailable));
                    });
                }
            }
        };
        tokio::select! {
            () = feeding => {}
            // The shard has moved, or has opened again.
            moved = whereabouts.changed() => if moved.is_err() { return },
        }
        if topic.upgrade().is_none_or(|topic| topic.lock().ended.is_some()) {
            return;
        }
    }
}

/// Compares the ring with the stream, which may have changed while the shard was elsewhere, or without effects because the
/// shard had lost its memory. Then asks for a key frame every now and then.
async fn feed_from_here(service: &Service, topic: &Weak<Topic>, every: &mut Duration) {
    let mut is_compared = false;
    loop {
        if is_compared {
            tokio::time::sleep(*every).await;
        }
        let Some(topic) = topic.upgrade() else { return };
        let info = match is_compared {
            true => service.push_key_frame(&topic.address, None).await,
            false => service.stream_info(&topic).await,
        };
        match info {
            Ok(info) => {
                topic.tell(|state| state.ring.handle_clock(info.clock));
                *every = Duration::from_millis(info.terms.key_frame_every().0);
                is_compared = true;
            }
            // It was deleted while the shard was elsewhere.
            Err(FollowError::StreamNotFound) => {
                let (namespace, stream) = &topic.address;
                return service.streams().deleted(namespace, stream);
            }
            Err(FollowError::Unavailable(_)) => {
                drop(topic);
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
    }
}

/// Takes what another node tells, until that ends.
async fn feed_from(service: &Service, topic: &Weak<Topic>, shard: ShardId, other: &str) {
    let wanted = {
        let Some(topic) = topic.upgrade() else { return };
        let (namespace, stream) = topic.address.clone();
        let resume_after = topic.lock().ring.last();
        Wanted { shard, namespace, stream, resume_after, make: None }
    };
    let Some(others) = service.others() else { return };
    let Ok(mut feed) = others.peers().follow(other, &wanted).await else {
        return tokio::time::sleep(ASK_AGAIN).await;
    };
    loop {
        let told = feed.next().await;
        let Some(topic) = topic.upgrade() else { return };
        match told {
            Ok(told) => topic.tell(|state| {
                for told in told {
                    match told {
                        Told::Change(change) => state.ring.push_change(change),
                        Told::KeyFrame(frame) => state.ring.push_key_frame(frame),
                    }
                }
            }),
            Err(FeedEnded::NoStream) => {
                let (namespace, stream) = &topic.address;
                return service.streams().deleted(namespace, stream);
            }
            Err(FeedEnded::Lost) => return tokio::time::sleep(ASK_AGAIN).await,
        }
    }
}
