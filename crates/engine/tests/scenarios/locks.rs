//! Commands and answers about locks as lines of text.

use crate::{lines, name, option_of};
use limina_engine::{
    Command, KeyValues, Millis, Page,
    key_values::Value,
    locks::{self, Acquire, Blocked, GrantInfo, Lock, Mode, Refusal, Reply},
    selection::Query,
};

/// `verb [ID] [lock[/shared]…] [option[:value]…]`, if the verb is one about locks. A session is its lock's id and `-s`.
pub(crate) fn parse(verb: &str, words: &[&str]) -> Option<Command> {
    let millis = |key: &str| option_of(words, key).map(|text| Millis(text.parse().unwrap()));
    let names: Vec<_> = words.iter().filter(|word| !word.contains(':')).collect();
    let id = || name(names[0]);
    let session = || name(option_of(words, "session").unwrap_or(&format!("{}-s", names[0])));
    let command = match verb {
        "lock" => {
            let locks = names[1..].iter().map(|word| lock_of(word)).collect();
            let ttl = millis("ttl").unwrap_or(Millis(1_000));
            let acquire = Acquire::new(id(), session(), locks, ttl).unwrap();
            locks::Command::Acquire(acquire.with_wait(millis("wait").unwrap_or(Millis(0))).unwrap())
        }
        "hang-up" => locks::Command::Abandon(id()),
        "keep" => locks::Command::Heartbeat { id: id(), session: session() },
        "unlock" => locks::Command::Release { id: id(), session: Some(session()) },
        "force" => locks::Command::Release { id: id(), session: None },
        "locks" => locks::Command::List { query: Query::default(), page: Page::new(None, 100).unwrap() },
        _ => return None,
    };
    Some(Command::Locks(command))
}

fn lock_of(word: &str) -> Lock {
    let (key, mode) = match word.strip_suffix("/shared") {
        Some(key) => (key, Mode::Shared),
        None => (word, Mode::Exclusive),
    };
    let key_values = KeyValues::new(vec![("lock", Value::<&str>::String(key))]).unwrap();
    Lock { key_values, mode }
}

pub(crate) fn show_reply(reply: &Reply) -> String {
    match reply {
        Reply::Granted { grant, .. } => format!("granted {}", show_grant(grant)),
        Reply::Abandoned => "gone".into(),
        Reply::Extended(grant) | Reply::Grant(grant) => show_grant(grant),
        Reply::Released => "released".into(),
        Reply::Grants(listed) => lines(listed.items.iter().map(show_grant)),
    }
}

pub(crate) fn show_refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::LockHeld(blocked) | Refusal::LockWaitTimeout(blocked) => {
            format!("{} {}", refusal.code(), show_blocked(blocked))
        }
        other => format!("{other:?}"),
    }
}

fn show_blocked(Blocked { key_values, holder, waiting }: &Blocked) -> String {
    let holder = holder
        .as_ref()
        .map_or("nobody".into(), |holder| format!("{} for {} more", holder.lock_id, holder.expires_in.0));
    format!("{key_values:?}: held by {holder}, {waiting} waiting")
}

fn show_grant(grant: &GrantInfo) -> String {
    let locks: Vec<String> =
        grant.locks.iter().map(|lock| format!("{:?} {:?}", lock.key_values, lock.mode)).collect();
    let held = grant.now.0 - grant.granted_at.0;
    let left = grant.expires_at.0 - grant.now.0;
    let (token, waiting) = (grant.fencing_token.0, grant.waiting);
    format!("{} [{}] token {token} held {held} left {left} waiting {waiting}", grant.id, locks.join(", "))
}
