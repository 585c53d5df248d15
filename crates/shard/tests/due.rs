//! Requests of clients while many timers are due.

use bytes::Bytes;
use limina_engine::{
    Command, Engine, Millis, Name, Options as EngineOptions, Outcome, Request, Time, Writes,
    events::{self, KeyFrame, Mode, Reply as EventsReply, StreamTerms, Submit},
    record,
};
use limina_shard::{Failure, Loss, Opening, Options, Output, Reply, Shard};
use std::collections::BTreeMap;

const BEGIN: u64 = 1_000_000;
/// Longer than the longest of these scripts.
const DURATION: u64 = 10_000;

fn options() -> Options {
    Options { due_slice: 4, max_lag: Millis(250), ..Options::default() }
}

fn request(command: events::Command) -> Request {
    Request::new(name(), Command::Events(command))
}

fn name() -> Name {
    Name::new("n").unwrap()
}

/// A shard in which this many events become due at each of these instants, from [`BEGIN`] on.
fn shard(options: Options, due: &[(u64, usize)]) -> Shard<()> {
    stored_shard(options, due, &mut BTreeMap::new())
}

/// The same, with what it stores.
fn stored_shard(
    options: Options,
    due: &[(u64, usize)],
    stored: &mut BTreeMap<Bytes, Option<Bytes>>,
) -> Shard<()> {
    let mut shard = Shard::new(options);
    let begin = BEGIN - DURATION;
    shard.handle_opened(
        Engine::open(EngineOptions::default(), []).unwrap(),
        Time(begin),
        Opening::Interrupted,
    );
    let terms = StreamTerms::new(Mode::OnlyOnce, Millis(DURATION)).unwrap();
    ask(&mut shard, events::Command::Put { name: name(), terms });
    settle_and_store(&mut shard, begin, stored);
    for &(at, count) in due {
        for number in 0..count {
            let event = format!("{at}/{number}").into();
            ask(&mut shard, events::Command::Submit(Submit::new(name(), event).unwrap()));
        }
        settle_and_store(&mut shard, begin + at, stored);
    }
    shard
}

fn store(stored: &mut BTreeMap<Bytes, Option<Bytes>>, writes: &Writes) {
    let copy = Bytes::copy_from_slice;
    stored.extend(writes.iter().map(|write| (copy(write.key), write.value.map(copy))));
}

fn ask(shard: &mut Shard<()>, command: events::Command) {
    shard.handle_request((), request(command));
}

/// Carries out everything that is to be done at this time. Returns the replies.
fn settle(shard: &mut Shard<()>, now: u64) -> Vec<Reply<()>> {
    settle_and_store(shard, now, &mut BTreeMap::new())
}

fn settle_and_store(
    shard: &mut Shard<()>,
    now: u64,
    stored: &mut BTreeMap<Bytes, Option<Bytes>>,
) -> Vec<Reply<()>> {
    let mut replies = Vec::new();
    while let Some(output) = shard.poll(Time(now)) {
        match output {
            Output::Append { writes, .. } => {
                store(stored, &writes);
                shard.handle_persisted();
            }
            Output::Confirm => shard.handle_persisted(),
            Output::Reply(reply) => replies.push(reply),
            Output::Effect(_) => {}
            other => panic!("not expected here: {other:?}"),
        }
    }
    replies
}

/// A client that reads the incubating events `now` is answered as of then, with this many events left.
fn check(due: &[(u64, usize)], now: u64, expected: (u64, usize)) {
    let mut shard = shard(options(), due);
    ask(&mut shard, events::Command::Incubating(name()));
    let replies = settle(&mut shard, BEGIN + now);
    let [Reply { decided_at: Some(Time(at)), result: Ok(outcome), .. }] = &replies[..] else {
        panic!("one answer, not {replies:?}");
    };
    let Outcome::Events(Ok(EventsReply::Incubating(KeyFrame { events, .. }))) = outcome else {
        panic!("not {outcome:?}");
    };
    assert_eq!((at - BEGIN, events.len()), expected, "{due:?} at {now}");
    let is_due = |event: &events::EventInfo| event.publishes_at <= Time(*at);
    assert!(!events.iter().any(is_due), "all that is due by then is done");
    assert_eq!(shard.engine().unwrap().stats().timers, 0, "in the end all is done");
}

#[test]
fn clients_have_their_turn_between_slices() {
    check(&[(10, 3), (20, 1)], 100, (100, 0));
    check(&[(10, 3), (20, 3), (30, 3)], 100, (19, 6));
    check(&[(10, 4), (20, 1)], 100, (19, 1));
    check(&[(10, 1), (11, 1), (12, 5)], 100, (11, 5));
}

#[test]
fn timers_of_one_instant_are_not_split() {
    check(&[(10, 10)], 100, (100, 0));
    check(&[(10, 10), (20, 3)], 100, (19, 3));
    check(&[(9, 1), (10, 10), (20, 3)], 100, (9, 13));
}

#[test]
fn clients_wait_where_time_would_lag_too_far_behind() {
    check(&[(10, 3), (20, 3), (30, 3)], 269, (19, 6));
    check(&[(10, 3), (20, 3), (30, 3)], 270, (29, 3));
    check(&[(10, 3), (20, 3), (30, 3)], 280, (280, 0));
    check(&[(10, 3), (20, 3), (400, 3)], 500, (399, 3));
}

#[test]
fn a_batch_does_not_wait_for_all_due_timers() {
    let mut shard = shard(options(), &[(10, 3), (20, 3), (30, 3), (40, 3)]);
    assert!(matches!(shard.poll(Time(BEGIN + 100)), Some(Output::Append { .. })));
    assert_eq!(shard.engine().unwrap().stats().timers, 6, "as many are left for the next ones");
}

#[test]
fn a_lagging_shard_reports_it_once() {
    let mut shard = shard(Options { max_batch: 3, ..options() }, &[(10, 3), (20, 3), (30, 3)]);
    let now = Time(BEGIN + 100);
    assert!(matches!(shard.poll(now), Some(Output::Append { .. })));
    assert!(shard.poll(now).is_none(), "the next batch is full, too");
    assert_eq!(shard.take_lag(), Some(Time(BEGIN + 29)));
    assert_eq!(shard.take_lag(), None);
    shard.handle_persisted();
    settle(&mut shard, now.0);
    assert_eq!(shard.take_lag(), None, "nothing is left");
}

/// The disk fills up when only some of what is due at one instant is stored. Until there is space, nobody reads that instant.
#[test]
fn an_instant_that_is_partly_stored_is_not_read() {
    let mut stored = BTreeMap::new();
    let mut shard = stored_shard(options(), &[(10, 5)], &mut stored);
    let now = BEGIN + 100;
    let Some(Output::Append { writes, .. }) = shard.poll(Time(now)) else { panic!("four are due") };
    store(&mut stored, &writes);
    shard.handle_persisted();
    let next =
        std::iter::from_fn(|| shard.poll(Time(now))).find(|output| !matches!(output, Output::Effect(_)));
    assert!(matches!(next, Some(Output::Append { .. })), "the fifth is due, not {next:?}");
    shard.handle_lost(Loss::Full);
    shard.handle_space(false);
    let residents = stored.range(record::key::residents());
    let residents = residents.filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
    let engine = Engine::open(EngineOptions::default(), residents).unwrap();
    shard.handle_opened(engine, Time(now), Opening::HandedOver);

    ask(&mut shard, events::Command::Incubating(name()));
    let replies = settle(&mut shard, now);
    assert!(matches!(&replies[..], [Reply { result: Err(Failure::StorageFull), .. }]), "{replies:?}");

    shard.handle_space(true);
    ask(&mut shard, events::Command::Incubating(name()));
    let replies = settle(&mut shard, now);
    let [Reply { result: Ok(Outcome::Events(Ok(EventsReply::Incubating(frame)))), .. }] = &replies[..] else {
        panic!("one answer, not {replies:?}");
    };
    assert!(frame.events.is_empty(), "{frame:?}");
}
