//! The size of an append, in bytes.

use limina_engine::{
    Command, Engine, KeyValues, Millis, Name, Options as EngineOptions, Request, Time,
    key_values::Value,
    limiter::{self, Change, Check, Durability, Limit, NewRule, RuleChange, Take},
    locks::{self, Acquire, Lock, LockRequest, Mode},
    selection::Selection,
};
use limina_shard::{Opening, Options, Output, Shard};

const REQUESTS: usize = 50;

/// A request whose change has about a thousand bytes.
fn large(number: usize) -> Request {
    let name = |text: String| Name::new(&text).unwrap();
    let text = format!("{number:04}{}", "x".repeat(1_000));
    let key_values = KeyValues::new(vec![("key", Value::String(text.as_str()))]).unwrap();
    let locks = vec![Lock { key_values, mode: Mode::Exclusive }];
    let (id, session) = (name(format!("lock {number}")), name("session".to_owned()));
    let wanted = Acquire::new(locks, Millis(10_000)).unwrap();
    let command = Command::Locks(locks::Command::Acquire(LockRequest { id, session, wanted }));
    Request::new(name("n".to_owned()), command)
}

/// Requests that arrive together are split into several batches if they have too many bytes, and answered in order.
#[test]
fn a_batch_ends_where_it_has_enough_bytes() {
    let check = |max_batch_bytes: usize, expect: usize| {
        let mut shard = Shard::new(Options { max_batch_bytes, ..Options::default() });
        let engine = Engine::open(EngineOptions::default(), []).unwrap();
        shard.handle_opened(engine, Time(1), Opening::Interrupted);
        for number in 0..REQUESTS {
            shard.handle_request(number, large(number));
        }
        let (mut appends, mut answered) = (Vec::new(), Vec::new());
        while let Some(output) = shard.poll(Time(1)) {
            match output {
                Output::Append { writes, requests } => {
                    let bytes =
                        writes.iter().map(|write| write.key.len() + write.value.map_or(0, <[u8]>::len));
                    let bytes: usize = bytes.sum();
                    assert!(bytes < max_batch_bytes.saturating_add(2_000), "an append of {bytes} bytes");
                    appends.push(requests);
                    shard.handle_persisted();
                }
                Output::Reply(reply) => {
                    assert!(reply.result.unwrap().is_done());
                    answered.push(reply.ticket);
                }
                Output::Effect(_) | Output::Confirm => {}
                other => panic!("not expected here: {other:?}"),
            }
        }
        assert_eq!(answered, (0..REQUESTS).collect::<Vec<_>>());
        assert_eq!(appends.iter().sum::<usize>(), REQUESTS);
        assert_eq!(appends.len(), expect, "{appends:?} with {max_batch_bytes} bytes");
    };
    check(usize::MAX, 1);
    check(1, REQUESTS);
    // About ten requests.
    check(10_000, 5);
}

/// All locks expire at one instant. A request at that instant is answered after all of them have expired.
#[test]
fn timers_that_are_due_together_are_split_into_batches_too() {
    let max_batch_bytes = 200;
    let mut shard = Shard::new(Options { max_batch_bytes, ..Options::default() });
    let engine = Engine::open(EngineOptions::default(), []).unwrap();
    shard.handle_opened(engine, Time(1), Opening::Interrupted);
    for number in 0..REQUESTS {
        shard.handle_request(number, large(number));
    }
    while let Some(output) = shard.poll(Time(1)) {
        if let Output::Append { .. } = output {
            shard.handle_persisted();
        }
    }
    shard.handle_request(0, large(0));
    let (mut appends, mut is_answered) = (0, false);
    while let Some(output) = shard.poll(Time(20_000)) {
        match output {
            Output::Append { writes, .. } => {
                let bytes = writes.iter().map(|write| write.key.len() + write.value.map_or(0, <[u8]>::len));
                let bytes: usize = bytes.sum();
                assert!(bytes < max_batch_bytes + 2_000, "an append of {bytes} bytes");
                appends += 1;
                shard.handle_persisted();
            }
            Output::Reply(reply) => is_answered = reply.result.unwrap().is_done(),
            _ => {}
        }
    }
    assert!(appends > 3, "{appends} appends");
    assert!(is_answered, "the lock that it wants has expired");
}

fn limiter(command: limiter::Command) -> Request {
    let namespace = Name::new("n").unwrap();
    Request::new(namespace, Command::Limiter(command))
}

/// A refund of a counter that is empty announces a write, and then writes nothing. Its answer is relaxed, so no seal
/// follows.
#[test]
fn a_batch_that_writes_nothing_is_never_full() {
    let mut shard = Shard::new(Options { max_batch_bytes: 1, ..Options::default() });
    let engine = Engine::open(EngineOptions::default(), []).unwrap();
    shard.handle_opened(engine, Time(1), Opening::Interrupted);
    let rule = NewRule {
        name: Name::new("slots").unwrap(),
        group_by: vec!["key".into()],
        selection: Selection::default(),
        limit: Limit::AtMost(3),
        window: None,
        shadow: false,
        durability: Some(Durability::Relaxed),
        description: None,
    };
    let key_values = KeyValues::new(vec![("key", Value::String("x"))]).unwrap();
    let refund = Check::new(vec![Take::new(key_values, -1).unwrap()]).unwrap();
    let requests = [
        limiter(limiter::Command::Change(RuleChange::new(Change::CreateRule(rule)).unwrap())),
        limiter(limiter::Command::Check(refund)),
        large(0),
    ];
    for (number, request) in requests.into_iter().enumerate() {
        shard.handle_request(number, request);
        let mut answered = false;
        while let Some(output) = shard.poll(Time(1)) {
            match output {
                Output::Append { .. } | Output::Confirm => shard.handle_persisted(),
                Output::Reply(reply) => answered = reply.result.unwrap().is_done(),
                _ => {}
            }
        }
        assert!(answered, "request {number}");
    }
}
