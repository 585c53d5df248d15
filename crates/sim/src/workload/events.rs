//! Random commands of events.

use super::valid::{VALID, name, page};
use crate::random::Random;
use limina_engine::{
    Millis, Name,
    events::{ChangesAfter, Command, Event, Mode, StreamTerms, Submit},
};

/// The streams and events to choose from.
#[derive(Debug, Clone)]
pub struct EventWorkload {
    streams: u64,
    events: u64,
    spans: Vec<u64>,
    max_events: u32,
}

impl EventWorkload {
    /// Chooses at random how many names there are, and so how often requests use the same ones.
    pub fn new(random: &mut Random) -> EventWorkload {
        let spans = random.pick(&[&[10, 100][..], &[50, 1_000], &[1_000, 60_000]]).to_vec();
        EventWorkload::with_spans(random, &spans)
    }

    /// The same, with these durations.
    pub fn with_spans(random: &mut Random, spans: &[u64]) -> EventWorkload {
        EventWorkload {
            streams: 1 + random.below(3),
            events: 1 + random.below(8),
            spans: spans.to_vec(),
            max_events: 1 + random.below(8) as u32,
        }
    }

    /// The durations in use.
    pub fn spans(&self) -> &[u64] {
        &self.spans
    }

    /// The names of all streams that may exist.
    pub fn streams(&self) -> impl Iterator<Item = Name> {
        (0..self.streams).map(stream_name)
    }

    /// The next random command.
    pub fn command(&mut self, random: &mut Random) -> Command {
        let stream = stream_name(random.below(self.streams));
        match random.below(100) {
            0..=9 => Command::Put { name: stream, terms: self.terms(random) },
            10..=11 => Command::Delete(stream),
            12..=69 => {
                let event: Event = format!("e{}", random.below(self.events)).into();
                let make = random.one_in(4).then(|| self.terms(random));
                Command::Submit(Submit::new(stream, event).expect(VALID).with_make(make))
            }
            70..=74 => {
                let make = random.one_in(4).then(|| self.terms(random));
                Command::KeyFrame { stream, make }
            }
            75..=79 => Command::Get(stream),
            80..=84 => Command::List(page(random, |random| stream_name(random.below(3)))),
            85..=92 => Command::Incubating(stream),
            _ => {
                let (after, limit) = (random.below(60), 1 + random.below(20) as usize);
                Command::Changes(ChangesAfter::new(stream, after, limit).expect(VALID))
            }
        }
    }

    fn terms(&self, random: &mut Random) -> StreamTerms {
        let mode = *random.pick(&[Mode::OnlyOnce, Mode::StrictlyOnce]);
        let terms = StreamTerms::new(mode, Millis(*random.pick(&self.spans))).expect(VALID);
        terms.with_max_events(self.max_events).expect(VALID)
    }
}

fn stream_name(number: u64) -> Name {
    name(&format!("s{number}"))
}
