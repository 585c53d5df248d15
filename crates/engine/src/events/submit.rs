//! `submit`: accept an event, or refuse a duplicate.

use super::{
    command::{Mode, StreamTerms, Submit},
    keys,
    reply::{Refusal, Reply, Submitted},
    stream::{Events, Key},
};
use crate::{effect::ChangeKind, turn::Turn};

pub(super) fn submit(
    events: &mut Events,
    turn: &mut Turn<'_>,
    Submit { stream: name, event, make }: &Submit,
) -> Result<Reply, Refusal> {
    match (events.find(name), make) {
        (Ok(stream), _) if stream.numbers.contains_key(event) => {}
        (Ok(stream), _) => {
            let max_events = stream.head.terms.max_events;
            if stream.keys.len() >= max_events as usize {
                return Err(Refusal::StreamFull { max_events });
            }
            events.check_quotas(turn, name, Some(event))?;
        }
        (Err(_), Some(terms)) => {
            events.check_quotas(turn, name, Some(event))?;
            events.make(turn, name, terms);
        }
        (Err(refusal), None) => return Err(refusal),
    }
    let (stream, tally) = events.find_mut(name).expect("it was just found or made");
    let StreamTerms { mode, duration, .. } = stream.head.terms;
    let until = turn.now.after(duration);
    let Some(number) = stream.numbers.get(event).copied() else {
        let number = turn.advance();
        let key = Key {
            event: event.clone(),
            time: turn.now,
            until,
            since: number,
            is_incubating: true,
            operation: None,
        };
        turn.put(keys::event(turn.namespace, stream.head.made_at, number), &key);
        turn.timers.set(key.timer_key(turn.namespace), stream.timer(number));
        let info = key.info();
        stream.remember(tally, number, key);
        let clock = stream.change(turn, tally, ChangeKind::Submitted, event.clone(), turn.now);
        return Ok(Reply::Submitted(Submitted { event: info, clock }));
    };

    // The key is closed: timers that are due by now have run, so a key that is still in memory has not been opened again.
    let key = stream.keys.get_mut(&number).expect("a key has what its number says");
    let (conflicting_time, invalidated) = match mode {
        Mode::OnlyOnce => (key.time, false),
        Mode::StrictlyOnce => {
            let (time, was_incubating) = (key.time, key.is_incubating);
            if key.operation.is_none() {
                turn.timers.cancel(key.timer_key(turn.namespace));
            }
            *key = Key {
                event: key.event.clone(),
                time: turn.now,
                until,
                since: turn.advance(),
                is_incubating: false,
                operation: None,
            };
            turn.put(keys::event(turn.namespace, stream.head.made_at, number), &*key);
            let timer_key = key.timer_key(turn.namespace);
            turn.timers.set(timer_key, stream.timer(number));
            if was_incubating {
                stream.incubating -= 1;
                stream.change(turn, tally, ChangeKind::Invalidated, event.clone(), time);
            }
            (time, was_incubating)
        }
    };
    Err(Refusal::EventConflict { conflicting_time, invalidated })
}
