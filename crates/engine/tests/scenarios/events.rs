//! Commands and answers about events as lines of text.

use super::{lines, name, option_of, page};
use limina_engine::{
    Command, Millis,
    events::{self, Change, Changes, ChangesAfter, EventInfo, Mode, Reply, StreamInfo, StreamTerms, Submit},
};

/// `verb [STREAM] [EVENT] [option[:value]…]`, if the verb is one about events. `event … make duration:10` makes the stream
/// if there is none. Names come before the flags `strictly` and `make`. `key-frame` asks for the key frame of a new
/// follower, and shows the stream.
pub(crate) fn parse(verb: &str, words: &[&str]) -> Option<Command> {
    let number = |key: &str| option_of(words, key).map(|text| text.parse::<u64>().unwrap());
    let names: Vec<_> = words.iter().filter(|word| !word.contains(':')).collect();
    let stream = || name(names[0]);
    let terms = || {
        let mode = if option_of(words, "strictly").is_some() { Mode::StrictlyOnce } else { Mode::OnlyOnce };
        let terms = StreamTerms::new(mode, Millis(number("duration").unwrap())).unwrap();
        let terms = terms.with_max_events(number("max").map_or(100, |max| max as u32)).unwrap();
        terms.with_key_frame_every(Millis(number("frames").unwrap_or(10_000))).unwrap()
    };
    let make = || option_of(words, "make").map(|_| terms());
    let command = match verb {
        "stream" => events::Command::Put { name: stream(), terms: terms() },
        "delete-stream" => events::Command::Delete(stream()),
        "event" => {
            let submit = Submit::new(stream(), (*names[1]).into()).unwrap();
            events::Command::Submit(submit.with_make(make()))
        }
        "key-frame" => events::Command::KeyFrame { stream: stream(), make: make() },
        "get-stream" => events::Command::Get(stream()),
        "streams" => events::Command::List(page(words, name)),
        "incubating" => events::Command::Incubating(stream()),
        "changes" => {
            events::Command::Changes(ChangesAfter::new(stream(), number("after").unwrap(), 100).unwrap())
        }
        _ => return None,
    };
    Some(Command::Events(command))
}

pub(crate) fn show_reply(reply: &Reply) -> String {
    match reply {
        Reply::Stream(stream) => show_stream(stream),
        Reply::StreamCreated(stream) => format!("created {}", show_stream(stream)),
        Reply::StreamDeleted => "deleted".into(),
        Reply::Streams(listed) => lines(listed.items.iter().map(show_stream)),
        Reply::Submitted(submitted) => format!("{}: {}", submitted.clock, show_event(&submitted.event)),
        Reply::Incubating(frame) => {
            let events = frame.events.iter().map(show_event);
            lines([format!("at {}", frame.clock)].into_iter().chain(events))
        }
        Reply::Changes(Changes::NotKept) => "not kept".into(),
        Reply::Changes(Changes::Kept(changes)) => lines(changes.iter().map(show_change)),
    }
}

fn show_stream(StreamInfo { name, terms, clock, incubating }: &StreamInfo) -> String {
    let (mode, duration, max) = (terms.mode(), terms.duration().0, terms.max_events());
    let frames = terms.key_frame_every().0;
    format!("{name} {mode:?} for {duration} max {max} frames {frames} at {clock}, {incubating} incubating")
}

fn show_event(EventInfo { event, time, publishes_at }: &EventInfo) -> String {
    format!("{event} of {} until {}", time.0, publishes_at.0)
}

fn show_change(Change { clock, kind, event, time }: &Change) -> String {
    format!("{clock}: {event} of {} {kind:?}", time.0)
}
