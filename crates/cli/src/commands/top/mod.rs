//! `limina top`: a live view for the person who is asked what is going on.

mod frame;
mod sample;

use crate::{Exit, Failed, Format, Session, Span};
use crossterm::{
    cursor,
    event::{Event, KeyCode, KeyEventKind, KeyModifiers},
    execute, queue,
    style::Print,
    terminal::{self, ClearType},
};
use frame::frame;
use sample::{Lists, Sample};
use std::{
    collections::VecDeque,
    io::{IsTerminal, Write},
    time::Duration,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

/// The number of samples that are kept for the small charts.
const HISTORY: usize = 120;

/// The arguments of `top`.
#[derive(clap::Args, Debug)]
pub struct TopArgs {
    /// Time between two samples
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    interval: Span,
    /// Print one view and exit (always, if the output is not a terminal)
    #[arg(long)]
    once: bool,
}

/// Everything that the view shows.
struct View {
    title: String,
    samples: VecDeque<Sample>,
    lists: Lists,
    /// Why the last samples are missing.
    trouble: Option<String>,
    paused: bool,
    /// Whether the view is drawn again and again, and listens to keys.
    live: bool,
}

pub(crate) async fn run(args: TopArgs, session: &mut Session) -> Result<Exit, Failed> {
    if session.out.format != Format::Table {
        return Err(Failed::usage("top is for people; GET /metrics has the numbers for programs"));
    }
    let interval = args.interval.0.max(Duration::from_millis(100));
    let mut view = View {
        title: format!("{} · namespace {}", session.connection.url, session.connection.namespace),
        samples: VecDeque::new(),
        lists: Lists::read(&session.client).await,
        trouble: None,
        paused: false,
        live: !args.once && std::io::stdout().is_terminal(),
    };
    view.samples.push_back(Sample::take(&session.client).await?);
    if !view.live {
        tokio::time::sleep(interval).await;
        view.samples.push_back(Sample::take(&session.client).await?);
        frame(&view, usize::from(u16::MAX)).iter().for_each(|line| session.out.line(line));
        return Ok(Exit::Yes);
    }
    let screen = Screen::open().map_err(|error| Failed::error(format!("the terminal: {error}")))?;
    let result = live(&mut view, session, interval).await;
    drop(screen);
    result.map_err(|error| Failed::error(format!("the terminal: {error}")))?;
    Ok(Exit::Yes)
}

async fn live(view: &mut View, session: &Session, interval: Duration) -> std::io::Result<()> {
    let mut keys = keys();
    let mut terminated = signal(SignalKind::terminate())?;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        draw(view)?;
        tokio::select! {
            _ = ticks.tick() => {
                if view.paused {
                    continue;
                }
                match Sample::take(&session.client).await {
                    Ok(sample) => {
                        view.trouble = None;
                        view.samples.push_back(sample);
                        view.samples.drain(..view.samples.len().saturating_sub(HISTORY));
                        view.lists = Lists::read(&session.client).await;
                    }
                    Err(error) => view.trouble = Some(error.to_string()),
                }
            }
            event = keys.recv() => match event {
                Some(Event::Key(key)) if key.kind != KeyEventKind::Release => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                    KeyCode::Char(' ' | 'p') => view.paused = !view.paused,
                    _ => {}
                },
                Some(_) => {}
                None => return Ok(()),
            },
            _ = terminated.recv() => return Ok(()),
        }
    }
}

/// Keys and changes of size, from a thread of their own: reading them blocks.
fn keys() -> mpsc::UnboundedReceiver<Event> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = crossterm::event::read() {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

fn draw(view: &View) -> std::io::Result<()> {
    let (_, height) = terminal::size()?;
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let mut stdout = std::io::stdout().lock();
    queue!(stdout, terminal::BeginSynchronizedUpdate, cursor::MoveTo(0, 0))?;
    for (row, line) in frame(view, usize::from(height)).iter().take(usize::from(height)).enumerate() {
        let line = if plain { anstream::adapter::strip_str(line).to_string() } else { line.clone() };
        queue!(stdout, cursor::MoveTo(0, row as u16), Print(line), terminal::Clear(ClearType::UntilNewLine))?;
    }
    queue!(stdout, terminal::Clear(ClearType::FromCursorDown), terminal::EndSynchronizedUpdate)?;
    stdout.flush()
}

/// The terminal, taken over. Dropping it gives it back.
struct Screen;

impl Screen {
    fn open() -> std::io::Result<Screen> {
        terminal::enable_raw_mode()?;
        let screen = Screen;
        // Without line wrap the terminal itself cuts lines that are too long, whatever the width of their characters is.
        execute!(std::io::stdout(), terminal::EnterAlternateScreen, cursor::Hide, terminal::DisableLineWrap)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(
            std::io::stdout(),
            terminal::EnableLineWrap,
            cursor::Show,
            terminal::LeaveAlternateScreen
        );
        let _ = terminal::disable_raw_mode();
    }
}
