//! `--watch`: repeats a command that only reads.

use crate::{Exit, Failed, Session, Span};
use std::time::Duration;

/// The option of every command that only reads.
#[derive(clap::Args, Debug, Clone, Copy)]
pub struct Watch {
    /// Repeat every two seconds, or at the given interval
    #[arg(short, long, value_name = "INTERVAL", num_args = 0..=1, require_equals = true, default_missing_value = "2s")]
    watch: Option<Span>,
}

impl Watch {
    /// Runs `command` once, or repeatedly until standard output has no reader. While the server cannot be reached,
    /// `--watch` continues.
    pub(crate) async fn run(
        self,
        session: &mut Session,
        command: impl AsyncFn(&mut Session) -> Result<Exit, Failed>,
    ) -> Result<Exit, Failed> {
        let Some(Span(interval)) = self.watch else { return command(session).await };
        let interval = interval.max(Duration::from_millis(100));
        let mut first = true;
        loop {
            session.out.begin_round(first);
            match command(session).await {
                Ok(_) => {}
                Err(failed) if failed.exit == Exit::Unavailable && !first => {
                    session.out.line(failed.to_string())
                }
                Err(failed) => return Err(failed),
            }
            session.out.flush();
            if session.out.is_closed() {
                return Ok(Exit::Yes);
            }
            first = false;
            tokio::time::sleep(interval).await;
        }
    }
}
