//! Feeds the ring of a stream, wherever the stream's shard is.

use super::{Ended, FollowError, StreamUpdate, Topic};
use crate::{FeedEnded, FeedRequest, Service, Unavailable, service::Location};
use limina_store::ShardId;
use std::{sync::Weak, time::Duration};
use tokio::time::Instant;

/// How long to wait before an owner that did not answer is asked again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// How often a stream whose key frames are rare is read, to see whether their interval has changed.
const READ_EVERY: Duration = Duration::from_secs(10);

/// Feeds the ring while the stream has followers. `every` is the time between two periodic key frames.
pub(super) async fn feed(service: Service, topic: Weak<Topic>, mut every: Duration) {
    let Some(address) = topic.upgrade().map(|topic| topic.address.clone()) else { return };
    let Some((shard, mut location)) = service.watch_location(&address.0) else { return };
    loop {
        let current = location.borrow_and_update().clone();
        let feeding = async {
            match current {
                // The shard's effects go into the ring without a feed.
                Location::Local(_) => feed_from_local_shard(&service, &topic, &mut every).await,
                Location::Remote(other) => feed_from_other_node(&service, &topic, shard, &other).await,
                Location::Unknown => std::future::pending().await,
                Location::Failed => {
                    let Some(topic) = topic.upgrade() else { return };
                    topic.update(|state| {
                        state.ended = Some(Ended::Unavailable(Unavailable::ShardUnavailable));
                    });
                }
            }
        };
        tokio::select! {
            () = feeding => {}
            // The shard has moved, or has opened again.
            moved = location.changed() => if moved.is_err() { return },
        }
        if topic.upgrade().is_none_or(|topic| topic.lock().ended.is_some()) {
            return;
        }
    }
}

/// Compares the ring with the stream: the stream may have changed while the shard was in another node, or the effects of
/// changes were lost with the shard's memory. Then asks the shard for periodic key frames.
async fn feed_from_local_shard(service: &Service, topic: &Weak<Topic>, every: &mut Duration) {
    let mut last_key_frame: Option<Instant> = None;
    loop {
        let is_due = match last_key_frame {
            Some(last) => {
                let due = last + *every;
                tokio::time::sleep_until(due.min(Instant::now() + READ_EVERY)).await;
                Instant::now() >= due
            }
            None => false,
        };
        let Some(topic) = topic.upgrade() else { return };
        let info = match is_due {
            true => service.push_key_frame(&topic.address, None).await,
            false => service.stream_info(&topic).await,
        };
        match info {
            Ok(info) => {
                topic.update(|state| state.ring.handle_clock(info.clock));
                *every = Duration::from_millis(info.terms.key_frame_every().0);
                if is_due || last_key_frame.is_none() {
                    last_key_frame = Some(Instant::now());
                }
            }
            // The stream was deleted while the shard was in another node.
            Err(FollowError::StreamNotFound | FollowError::QuotaExceeded(_)) => {
                let (namespace, stream) = &topic.address;
                return service.streams().deleted(namespace, stream);
            }
            Err(FollowError::Unavailable(_)) => {
                drop(topic);
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// Feeds the ring with what another node sends, until that feed ends.
async fn feed_from_other_node(service: &Service, topic: &Weak<Topic>, shard: ShardId, other: &str) {
    let request = {
        let Some(topic) = topic.upgrade() else { return };
        let (namespace, stream) = topic.address.clone();
        let resume_after = topic.lock().ring.last();
        FeedRequest { shard, namespace, stream, resume_after, make: None }
    };
    let Some(others) = service.others() else { return };
    let Ok(mut feed) = others.peers().follow(other, &request).await else {
        return tokio::time::sleep(RETRY_PAUSE).await;
    };
    loop {
        let updates = feed.next().await;
        let Some(topic) = topic.upgrade() else { return };
        match updates {
            Ok(updates) => topic.update(|state| {
                for update in updates {
                    match update {
                        StreamUpdate::Change(change) => state.ring.push_change(change),
                        StreamUpdate::KeyFrame(frame) => state.ring.push_key_frame(frame),
                    }
                }
            }),
            Err(FeedEnded::NoStream) => {
                let (namespace, stream) = &topic.address;
                return service.streams().deleted(namespace, stream);
            }
            Err(FeedEnded::Lost) => return tokio::time::sleep(RETRY_PAUSE).await,
        }
    }
}
