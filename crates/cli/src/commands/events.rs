//! `limina events`: streams of events that happen once.

use crate::{Exit, Failed, ListLimit, Session, output::Output, table::Table, watch::Watch, words};
use limina_api::events::Mode;
use limina_client::types::{Message, Stream};

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
            words::duration(stream.duration_ms),
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
