//! The binary: configuration, wiring, subcommands. Only this crate brings stores and front ends together.

mod access;
mod clock;
mod config;
mod descriptors;
mod envoy;
mod listen;
mod logs;
mod memory;
mod moving;
mod open;
mod progress;
mod quotas;
mod rules;
mod serve;
mod tls;
mod verify;
mod watch;

use clap::Parser;
use std::{error::Error, io::Write, process::ExitCode};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// May this happen now? Limits, locks, events and a ledger, durable and exact, in one binary.
#[derive(Parser)]
#[command(name = "limina", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: config::ServeArgs,
}

#[derive(clap::Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
enum Command {
    /// Serve requests (also the default without a subcommand).
    Serve(config::ServeArgs),
    /// Check the data directory of a stopped server: reads everything, changes nothing.
    Verify(verify::VerifyArgs),
    /// Export everything that a store holds to one file: a backup, or the input of `import`.
    Export(moving::ExportArgs),
    /// Create a new store from a file that `export` wrote.
    Import(moving::ImportArgs),
    /// Work with a file of limiter rules.
    #[command(subcommand)]
    Rules(RulesCommand),
    /// Work with tokens, by which clients are let in.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Print the OpenAPI description of the HTTP interface.
    Openapi,
}

#[derive(clap::Subcommand)]
enum RulesCommand {
    /// Check a rules file, or a configuration of Envoy, without a server: prints every mistake with its line.
    Check(rules::CheckArgs),
}

#[derive(clap::Subcommand)]
enum TokenCommand {
    /// Make a token: prints it once, with the block for the file of --tokens.
    New(access::NewTokenArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => serve::serve(cli.serve),
        Some(Command::Serve(args)) => serve::serve(args),
        Some(Command::Verify(args)) => verify::verify(args),
        Some(Command::Export(args)) => moving::export(args),
        Some(Command::Import(args)) => moving::import(args),
        Some(Command::Rules(RulesCommand::Check(args))) => rules::check(args),
        Some(Command::Token(TokenCommand::New(args))) => access::new_token(args),
        Some(Command::Openapi) => print(&limina_server::openapi_json()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress::say(&chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// The error with all its causes, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// Prints to standard output. A reader that closes the pipe early is not an error.
fn print(text: &str) -> Result<(), Box<dyn Error>> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
