//! A holder has its full ttl from when it can send a heartbeat, not from when the shard was opened.

use limina_engine::{
    Command, Engine, KeyValues, Millis, Name, Options as EngineOptions, Outcome, Request, Time,
    key_values::Value,
    locks::{self, Acquire, Lock, LockRequest, Mode, Reply as LocksReply},
};
use limina_shard::{Opening, Options, Output, Shard};

const OPENED: u64 = 1_000_000;
const TTL: u64 = 500;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// The answer of the locks at this time.
fn ask(shard: &mut Shard<()>, now: u64, command: locks::Command) -> Result<LocksReply, locks::Refusal> {
    let request = Request::new(name("n"), Command::Locks(command));
    shard.handle_request((), request);
    let mut answer = None;
    while let Some(output) = shard.poll(Time(now)) {
        match output {
            Output::Append { .. } | Output::Confirm => shard.handle_persisted(),
            Output::Reply(reply) => answer = Some(reply.result.unwrap()),
            Output::Effect(_) => {}
            other => panic!("not expected here: {other:?}"),
        }
    }
    match answer {
        Some(Outcome::Locks(answer)) => answer,
        other => panic!("not {other:?}"),
    }
}

/// A shard with one lock that is held, opened at [`OPENED`].
fn shard(opening: Opening, is_held_back: bool) -> Shard<()> {
    let mut shard = Shard::new(Options::default());
    if is_held_back {
        shard.wait_for_serving(Time(0));
    }
    let engine = Engine::open(EngineOptions::default(), []).unwrap();
    shard.handle_opened(engine, Time(OPENED), opening);
    let key_values = KeyValues::new(vec![("lock", Value::<&str>::Integer(1))]).unwrap();
    let locks = vec![Lock { key_values, mode: Mode::Exclusive }];
    let wanted = Acquire::new(locks, Millis(TTL)).unwrap();
    let request = LockRequest { id: name("a"), session: name("s"), wanted };
    ask(&mut shard, OPENED, locks::Command::Acquire(request)).unwrap();
    shard
}

/// How long the lock is still held, if it is.
fn left(shard: &mut Shard<()>, now: u64) -> Option<u64> {
    match ask(shard, now, locks::Command::Get(name("a"))) {
        Ok(LocksReply::Grant(grant)) => Some(grant.expires_in_ms.0),
        Err(locks::Refusal::LockNotFound { .. }) => None,
        other => panic!("not {other:?}"),
    }
}

#[test]
fn time_stands_still_until_clients_are_served() {
    let mut shard = shard(Opening::Interrupted, true);
    let later = OPENED + 10 * TTL;
    assert_eq!(shard.next_wakeup(), None, "nothing falls due");
    assert_eq!(left(&mut shard, later), Some(TTL));
    shard.handle_serving(Time(later));
    assert_eq!(left(&mut shard, later), Some(TTL), "its full time from now on");
    assert_eq!(shard.next_wakeup(), Some(Time(later + TTL)));
    assert_eq!(left(&mut shard, later + TTL - 1), Some(1));
    assert_eq!(left(&mut shard, later + TTL), None);
}

#[test]
fn time_stands_still_while_clients_cannot_reach_an_open_shard() {
    let mut shard = shard(Opening::HandedOver, false);
    let (stopped, later) = (OPENED + TTL / 2, OPENED + 10 * TTL);
    shard.wait_for_serving(Time(stopped));
    assert_eq!(shard.next_wakeup(), None, "nothing falls due");
    shard.wait_for_serving(Time(later));
    assert_eq!(left(&mut shard, later), Some(TTL - TTL / 2), "it still stands at the first time");
    shard.handle_serving(Time(later));
    assert_eq!(left(&mut shard, later), Some(TTL), "its full time from now on");
    assert_eq!(left(&mut shard, later + TTL), None);
}

#[test]
fn time_runs_where_clients_are_served_or_the_shard_was_handed_over() {
    let mut served = shard(Opening::Interrupted, false);
    assert_eq!(left(&mut served, OPENED + TTL - 1), Some(1));
    assert_eq!(left(&mut served, OPENED + TTL), None);
    let mut handed_over = shard(Opening::HandedOver, true);
    assert_eq!(left(&mut handed_over, OPENED + TTL), None);
    // A second call changes nothing.
    let mut served = shard(Opening::Interrupted, false);
    served.handle_serving(Time(OPENED + TTL - 1));
    assert_eq!(left(&mut served, OPENED + TTL), None);
}

/// The process stood still for so long that the lock would have ended, and nobody could send a heartbeat meanwhile.
#[test]
fn an_interruption_gives_everything_held_its_full_ttl() {
    let mut shard = shard(Opening::HandedOver, false);
    let later = OPENED + 10 * TTL;
    shard.handle_interruption(Time(later));
    assert_eq!(left(&mut shard, later), Some(TTL), "nothing has fallen due");
    assert_eq!(left(&mut shard, later + TTL - 1), Some(1));
    assert_eq!(left(&mut shard, later + TTL), None);
    // What had ended before stays ended.
    shard.handle_interruption(Time(later + 2 * TTL));
    assert_eq!(left(&mut shard, later + 2 * TTL), None);
}

#[test]
fn stopped_time_stays_stopped_after_an_interruption() {
    let mut shard = shard(Opening::Interrupted, true);
    let later = OPENED + 10 * TTL;
    shard.handle_interruption(Time(later));
    assert_eq!(shard.next_wakeup(), None, "nothing falls due");
    shard.handle_serving(Time(later));
    assert_eq!(left(&mut shard, later), Some(TTL), "its full time from when clients are served");
}
