//! Running a command that asks a server.

use crate::{Command, Exit, Failed, Options, Session, output::Output, report, words};

/// Runs a command to its end, and says what went wrong on standard error.
pub fn run(options: &Options, command: Command) -> Exit {
    let format = options.output.unwrap_or_default();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(Failed::error(format!("the runtime: {error}"))),
    };
    let session = runtime.block_on(async {
        let (client, connection) = options.client()?;
        Ok(Session { client, connection, out: Output::new(format) })
    });
    let mut session = match session {
        Ok(session) => session,
        Err(failed) => return report(failed),
    };
    let result = runtime.block_on(command.run(&mut session));
    if let Err(Failed { document: Some(document), .. }) = &result
        && !session.out.is_table()
    {
        session.out.line(document);
    }
    session.out.flush();
    let exit = result.unwrap_or_else(|mut failed| {
        if failed.exit == Exit::Unavailable {
            failed.message = format!("{}: {}", words::printable(&session.connection.url), failed.message);
        }
        report(failed)
    });
    session.out.finish(exit)
}
