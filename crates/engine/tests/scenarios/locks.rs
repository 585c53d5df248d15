//! Commands and answers about locks as lines of text.

use super::{
    conditions::{self, query},
    lines, name, option_of, page, show_quota,
};
use limina_engine::{
    Command, KeyValues, Millis, Position,
    key_values::Value,
    locks::{self, Acquire, Blocked, GrantInfo, Lock, LockRequest, Mode, Refusal, Reply},
};

/// `verb [ID] [lock[/shared]…] [option[:value]…]`, if the verb is one about locks. A lock is `a`, which stands for
/// `lock=a`, or a list of key-values `door=front,floor=3`. A grant's session is its id and `-s`.
pub(crate) fn parse(verb: &str, words: &[&str]) -> Option<Command> {
    let millis = |key: &str| option_of(words, key).map(|text| Millis(text.parse().unwrap()));
    let names: Vec<_> = words.iter().filter(|word| !word.contains(':')).collect();
    let id = || name(names[0]);
    let session = || name(option_of(words, "session").unwrap_or(&format!("{}-s", names[0])));
    let command = match verb {
        "lock" => {
            let locks = names[1..].iter().map(|word| lock_of(word)).collect();
            let ttl = millis("ttl").unwrap_or(Millis(1_000));
            let wanted = Acquire::new(locks, ttl).unwrap();
            let wanted = wanted.with_wait(millis("wait").unwrap_or(Millis(0))).unwrap();
            let wanted = wanted.with_owner(option_of(words, "owner").map(name));
            locks::Command::Acquire(LockRequest { id: id(), session: session(), wanted })
        }
        "hang-up" => locks::Command::Abandon(id()),
        "keep" => locks::Command::Heartbeat { id: id(), session: session() },
        "unlock" => locks::Command::Release { id: id(), session: Some(session()) },
        "force" => locks::Command::Release { id: id(), session: None },
        "get-lock" => locks::Command::Get(id()),
        "locks" => locks::Command::List {
            query: query(option_of(words, "where").unwrap_or_default()),
            page: page(words, |text| Position(text.parse().unwrap())),
        },
        _ => return None,
    };
    Some(Command::Locks(command))
}

pub(crate) fn lock_of(word: &str) -> Lock {
    let (key, mode) = match word.strip_suffix("/shared") {
        Some(key) => (key, Mode::Shared),
        None => (word, Mode::Exclusive),
    };
    let key_values = match key.contains('=') {
        true => conditions::key_values(key.split(',')),
        false => KeyValues::new(vec![("lock", Value::<&str>::String(key))]).unwrap(),
    };
    Lock { key_values, mode }
}

pub(crate) fn show_reply(reply: &Reply) -> String {
    match reply {
        Reply::Granted { grant, session } => {
            let own = session.as_str() == format!("{}-s", grant.lock_id);
            let session = if own { String::new() } else { format!(" session {session}") };
            format!("granted {}{session}", show_grant(grant))
        }
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
        Refusal::QuotaExceeded(exceeded) => show_quota(exceeded),
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
    let (held, left) = (grant.held_ms.0, grant.expires_in_ms.0);
    let (token, waiting) = (grant.fencing_token.0, grant.waiting);
    let operation = grant.operation_id.as_ref().map_or(String::new(), |id| format!(" in {id}"));
    let owner = grant.owner.as_ref().map_or(String::new(), |owner| format!(" of {owner}"));
    format!(
        "{}{operation}{owner} [{}] token {token} held {held} left {left} waiting {waiting}",
        grant.lock_id,
        locks.join(", ")
    )
}
