//! The subscriptions of one connection.

use super::action::AckMode;
use super::fault::Fault;
use crate::codec::{Command, Version, write_header};
use alloc::collections::BTreeMap;
use alloc::string::String;
use bytes::{BufMut, Bytes, BytesMut};
use core::fmt::Write;

/// Identifies a subscription of a connection. It is never reused, unlike the id that the client chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subscription(u64);

#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    open: BTreeMap<Subscription, Entry>,
    opened: u64,
}

#[derive(Debug)]
struct Entry {
    /// In 1.0 the id may be missing. Then the destination identifies the subscription.
    id: Option<String>,
    destination: String,
    /// The beginning of each MESSAGE, up to the number of the message.
    prefix: Bytes,
    /// Whether messages have the header `ack`.
    names_ack: bool,
    /// The number of messages sent so far.
    sent: u64,
}

impl Subscriptions {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn held_bytes(&self) -> usize {
        let id = |entry: &Entry| entry.id.as_ref().map_or(0, String::len);
        self.open.values().map(|entry| id(entry) + entry.destination.len() + entry.prefix.len()).sum()
    }

    pub(super) fn add(
        &mut self,
        version: Version,
        id: Option<&str>,
        destination: &str,
        ack: AckMode,
        limit: usize,
    ) -> Result<Subscription, Fault> {
        let same = |entry: &Entry| match id {
            Some(_) => entry.id.as_deref() == id,
            None => entry.id.is_none() && entry.destination == destination,
        };
        if self.open.values().any(same) {
            return Err(Fault::SubscriptionExists);
        }
        if self.open.len() >= limit {
            return Err(Fault::TooManySubscriptions(limit));
        }
        self.opened += 1;
        let subscription = Subscription(self.opened);
        let entry = Entry {
            id: id.map(String::from),
            destination: destination.into(),
            prefix: prefix(version, id, destination, subscription),
            names_ack: version >= Version::V1_2 && ack != AckMode::Auto,
            sent: 0,
        };
        self.open.insert(subscription, entry);
        Ok(subscription)
    }

    /// Removes a subscription by its id or, if there is none, by its destination.
    pub(super) fn remove(
        &mut self,
        id: Option<&str>,
        destination: Option<&str>,
    ) -> Result<Subscription, Fault> {
        let same = |entry: &Entry| match id {
            Some(_) => entry.id.as_deref() == id,
            None => Some(entry.destination.as_str()) == destination,
        };
        let found = self.open.iter().find(|(_, entry)| same(entry)).map(|(subscription, _)| *subscription);
        let subscription = found.ok_or(Fault::SubscriptionNotFound)?;
        self.open.remove(&subscription);
        Ok(subscription)
    }

    /// Writes a MESSAGE up to the beginning of its payload. Returns false if there is no such subscription.
    pub(super) fn write_message(&mut self, subscription: Subscription, out: &mut BytesMut) -> bool {
        let Some(entry) = self.open.get_mut(&subscription) else { return false };
        entry.sent += 1;
        out.put_slice(&entry.prefix);
        let number = entry.sent;
        let written = if entry.names_ack {
            writeln!(out, "{number}\nack:{}-{number}", subscription.0)
        } else {
            writeln!(out, "{number}")
        };
        written.expect("a buffer that grows takes everything");
        true
    }

    /// The message that an acknowledgement names. `None` if its subscription has ended.
    pub(super) fn find_message(&self, id: &str) -> Result<Option<(Subscription, u64)>, Fault> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| Fault::MessageNotFound);
        let (subscription, message) = id.split_once('-').ok_or(Fault::MessageNotFound)?;
        let (subscription, message) = (Subscription(number(subscription)?), number(message)?);
        if subscription.0 == 0 || subscription.0 > self.opened || message == 0 {
            return Err(Fault::MessageNotFound);
        }
        match self.open.get(&subscription) {
            None => Ok(None),
            Some(entry) if message <= entry.sent => Ok(Some((subscription, message))),
            Some(_) => Err(Fault::MessageNotFound),
        }
    }
}

fn prefix(version: Version, id: Option<&str>, destination: &str, subscription: Subscription) -> Bytes {
    let mut out = BytesMut::new();
    out.put_slice(Command::Message.as_str().as_bytes());
    out.put_u8(b'\n');
    if let Some(id) = id {
        write_header(&mut out, version, Command::Message, "subscription", id);
    }
    write_header(&mut out, version, Command::Message, "destination", destination);
    write!(out, "message-id:{}-", subscription.0).expect("a buffer that grows takes everything");
    out.freeze()
}
