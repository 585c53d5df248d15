//! How the ring of a stream is fed, wherever the stream's shard is.

use super::{NotFollowed, Told, Topic};
use crate::{FeedEnded, Service, Wanted, service::At};
use limina_store::ShardId;
use std::{sync::Weak, time::Duration};

/// How long to wait before another node is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Sees to it that the ring is fed, from wherever the stream's shard is, for as long as anybody follows.
pub(super) async fn feed(service: Service, topic: Weak<Topic>, mut every: Duration) {
    let Some(address) = topic.upgrade().map(|topic| topic.address.clone()) else { return };
    let Some((shard, mut whereabouts)) = service.watch(&address.0) else { return };
    loop {
        let at = whereabouts.borrow_and_update().clone();
        let feeding = async {
            match at {
                // What its shard tells goes into the ring by itself.
                At::Here(_) => beat(&service, &topic, &mut every).await,
                At::There(other) => feed_from(&service, &topic, shard, &other).await,
                At::Nowhere => std::future::pending().await,
            }
        };
        tokio::select! {
            () = feeding => {}
            moved = whereabouts.changed() => if moved.is_err() { return },
        }
        if topic.upgrade().is_none_or(|topic| topic.lock().ended.is_some()) {
            return;
        }
    }
}

/// Tells those who follow, every now and then, all that incubates.
async fn beat(service: &Service, topic: &Weak<Topic>, every: &mut Duration) {
    tokio::time::sleep(*every).await;
    let Some(topic) = topic.upgrade() else { return };
    topic.lock().is_for_all = true;
    match service.key_frame(&topic.address, None).await {
        Ok(info) => *every = Duration::from_millis(info.terms.key_frame_every.0),
        // It was deleted while it was elsewhere.
        Err(NotFollowed::StreamNotFound) => service.streams().deleted(&topic.address.0, &topic.address.1),
        // Those who follow have what they have; there will be another time.
        Err(_) => topic.lock().is_for_all = false,
    }
}

/// Takes what another node tells, until that ends.
async fn feed_from(service: &Service, topic: &Weak<Topic>, shard: ShardId, other: &str) {
    let wanted = {
        let Some(topic) = topic.upgrade() else { return };
        let (namespace, stream) = topic.address.clone();
        let resume_after = topic.lock().last;
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
            Ok(told) => topic.tell(|ring| {
                for fed in told {
                    match fed.told {
                        Told::Change(change) => ring.push_change(change),
                        Told::KeyFrame(frame) => ring.push_key_frame(frame, fed.is_for_all),
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
