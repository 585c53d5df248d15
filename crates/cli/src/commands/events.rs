//! `limina events`: streams of events that happen once.

use crate::{Exit, Failed, ListLimit, Session, Span, output::Output, table::Table, watch::Watch, words};
use limina_api::events::Mode;
use limina_client::{
    Error,
    types::{Message, Stream},
};
use serde_json::{Value, json};

/// The commands of `events`.
#[derive(clap::Subcommand, Debug)]
pub enum EventsCommand {
    /// List the streams
    Ls {
        /// How much of the list
        #[command(flatten)]
        limit: ListLimit,
        /// Whether to repeat
        #[command(flatten)]
        watch: Watch,
    },
    /// Create a stream, or change the given settings of one
    Set(StreamSettings),
    /// Delete a stream with its events
    Rm {
        /// The stream
        #[arg(value_name = "STREAM")]
        stream: String,
        /// Confirm it; without this flag the command only shows what it would delete
        #[arg(long)]
        yes: bool,
    },
    /// Follow a stream: what incubates now, then every change
    Tail {
        /// The stream
        #[arg(value_name = "STREAM")]
        stream: String,
        /// Only changes after this clock
        #[arg(long, value_name = "CLOCK")]
        after: Option<u64>,
    },
    /// Submit an event; exits with 3 if it has happened already
    Submit {
        /// The stream
        #[arg(value_name = "STREAM")]
        stream: String,
        /// The text of the event
        #[arg(value_name = "EVENT")]
        event: String,
    },
}

/// The settings of `events set`. Those that are not given stay as they are.
#[derive(clap::Args, Debug)]
pub struct StreamSettings {
    /// The stream
    #[arg(value_name = "STREAM")]
    stream: String,
    /// What a duplicate does: it is refused (`only_once`), or it is refused and ends the earlier event, too (`strictly_once`).
    /// It cannot change later
    #[arg(long, value_name = "WORD", value_parser = ["only_once", "strictly_once"])]
    mode: Option<String>,
    /// How long an event blocks duplicates of itself, before it is published
    #[arg(long, value_name = "DURATION")]
    duration: Option<Span>,
    /// How many distinct events the stream can remember at once
    #[arg(long, value_name = "N")]
    max_events: Option<u32>,
    /// How often followers receive all incubating events
    #[arg(long, value_name = "DURATION")]
    key_frame_every: Option<Span>,
}

pub(crate) async fn run(command: EventsCommand, session: &mut Session) -> Result<Exit, Failed> {
    match command {
        EventsCommand::Ls { limit, watch } => {
            watch
                .run(session, async |session| {
                    let streams = session.client.events().list();
                    session.out.list(streams, limit, show).await?;
                    Ok(Exit::Yes)
                })
                .await
        }
        EventsCommand::Set(settings) => set(settings, session).await,
        EventsCommand::Rm { stream, yes } => remove(&stream, yes, session).await,
        EventsCommand::Tail { stream, after } => tail(&stream, after, session).await,
        EventsCommand::Submit { stream, event } => {
            let submitted = session.client.events().submit(&stream, &event).await?;
            session.out.reply(&submitted, |out, submitted| {
                let when = words::time(submitted.publishes_at);
                out.line(format!("submitted at clock {}; it is published at {when}", submitted.clock));
            });
            Ok(Exit::Yes)
        }
    }
}

/// Creates the stream, or changes the given fields: the API replaces a stream whole, so the others are sent as they were read.
async fn set(settings: StreamSettings, session: &mut Session) -> Result<Exit, Failed> {
    let client = session.client.clone();
    let StreamSettings { stream, mode, duration, max_events, key_frame_every } = settings;
    let found = match client.events().get(&stream).await {
        Ok(found) => Some(found.into_inner()),
        Err(Error::NotFound(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let created = found.is_none();
    let mut document = match found {
        Some(found) => json!(found),
        None if mode.is_some() && duration.is_some() => json!({}),
        None => {
            let (stream, next) = (words::printable(&stream), session.command("streams ls"));
            let why = format!("there is no stream {stream}. To create it, give --mode and --duration");
            return Err(Failed::new(Exit::NotFound, format!("{why}; `{next}` lists the streams")));
        }
    };
    let millis = |Span(span): Span| json!(span.as_millis() as u64);
    let changes = [
        ("mode", mode.map(Value::from)),
        ("duration_ms", duration.map(millis)),
        ("max_events", max_events.map(Value::from)),
        ("key_frame_every_ms", key_frame_every.map(millis)),
    ];
    if changes.iter().all(|(_, value)| value.is_none()) {
        return Err(Failed::usage(
            "there is nothing to change: `limina streams set --help` lists the settings",
        ));
    }
    for (field, value) in changes {
        if let Some(value) = value {
            document[field] = value;
        }
    }
    let changed =
        client.events().put(&stream, &document).await.map_err(|error| session.with_next_step(error))?;
    session.out.reply(&changed, |out, changed| show(out, std::slice::from_ref(changed)));
    session.done(if created { "created the stream" } else { "changed the stream" }, &stream);
    Ok(Exit::Yes)
}

async fn remove(stream: &str, yes: bool, session: &mut Session) -> Result<Exit, Failed> {
    let client = session.client.clone();
    let found =
        client.events().get(stream).await.map_err(|error| session.with_next_step(error))?.into_inner();
    let incubating = words::counted(found.incubating as u64, "incubating event");
    if !yes {
        show(&mut session.out, &[found]);
        session.out.flush();
        return Err(Failed::needs_yes(format!(
            "this deletes the stream with {incubating}, which will not be published"
        )));
    }
    client.events().delete(stream).await.map_err(|error| session.with_next_step(error))?;
    session.out.say(format!("deleted the stream {} with {incubating}", words::printable(stream)));
    Ok(Exit::Yes)
}

async fn tail(stream: &str, after: Option<u64>, session: &mut Session) -> Result<Exit, Failed> {
    let mut follow = session.client.events().follow(stream);
    if let Some(clock) = after {
        follow = follow.after(clock);
    }
    let mut key_frame_shown = false;
    while let Some(message) = session.out.unless_closed(follow.next()).await {
        let message = message?;
        // Key frames come again and again. People need the first, programs get all.
        let repeated = matches!(*message, Message::KeyFrame { .. }) && key_frame_shown;
        key_frame_shown |= matches!(*message, Message::KeyFrame { .. });
        if !(session.out.is_table() && repeated) {
            session.out.reply(&message, show_message);
            session.out.flush();
        }
    }
    Ok(Exit::Yes)
}

fn show(out: &mut Output, streams: &[Stream]) {
    let mut table = Table::new(&["STREAM", "MODE", ">DURATION", ">INCUBATING", ">CLOCK", ">MAX EVENTS"]);
    for stream in streams {
        table.row([
            words::printable(&stream.name),
            match stream.mode {
                Mode::OnlyOnce => "only once".to_owned(),
                Mode::StrictlyOnce => "strictly once".to_owned(),
            },
            words::setting(stream.duration_ms),
            words::number(stream.incubating as u64),
            stream.clock.to_string(),
            words::number(stream.max_events),
        ]);
    }
    out.table(&table);
    if streams.is_empty() {
        out.say("no streams");
    }
}

fn show_message(out: &mut Output, message: &Message) {
    let (what, clock, event) = match message {
        Message::KeyFrame { clock, snapshot } => {
            for event in snapshot {
                out.line(format!(
                    "{}  incubating   {}",
                    words::time(event.time),
                    words::printable(&event.event)
                ));
            }
            return out.say(format!(
                "{} at clock {clock}",
                words::counted(snapshot.len() as u64, "incubating event")
            ));
        }
        Message::Submitted { clock, event_time } => ("submitted", clock, event_time),
        Message::Invalidated { clock, event_time } => ("invalidated", clock, event_time),
        Message::Published { clock, event_time } => ("published", clock, event_time),
    };
    out.line(format!(
        "{}  {what:11}  {}  (clock {clock})",
        words::time(event.time),
        words::printable(&event.event)
    ));
}
