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
mod process_metrics;
mod progress;
mod quotas;
mod restored;
mod rules;
mod serve;
mod settings;
mod tls;
mod verify;
mod watch;

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, parser::ValueSource};
use limina_cli::{Exit, Failed};
#[cfg(not(feature = "cli"))]
use std::ffi::OsString;
use std::{error::Error, io::Write, process::ExitCode};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// May this happen now? Limits, locks, events and a ledger, durable and exact, in one binary.
#[derive(Parser)]
#[command(name = "limina", version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: limina_cli::Options,
    #[command(flatten)]
    serve: settings::Settings,
}

#[derive(clap::Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
enum Command {
    /// Serve requests (also the default without a command)
    Serve(settings::Settings),
    /// Check the data directory of a stopped server: reads everything, changes nothing
    Verify(verify::VerifyArgs),
    /// Export everything that a store holds to one file: a backup, or the input of `import`
    Export(moving::ExportArgs),
    /// Create a new store from a file that `export` wrote
    Import(moving::ImportArgs),
    /// Say that a store was restored from an older copy, so that no fencing token is used twice
    MarkRestored(restored::MarkRestoredArgs),
    /// Rules of the limiter: look, set one, delete one, compare with a file, apply a file
    #[command(subcommand)]
    Rules(RulesCommand),
    /// Make tokens, by which clients are let in, or list those of a file
    #[command(subcommand)]
    Token(TokenCommand),
    /// Print the OpenAPI description of the HTTP interface
    Openapi,
    /// Print completions for a shell
    #[cfg(feature = "cli")]
    Completions(limina_cli::CompletionsArgs),
    #[cfg(feature = "cli")]
    #[command(flatten)]
    Client(limina_cli::Command),
    #[cfg(not(feature = "cli"))]
    #[command(external_subcommand)]
    NotBuilt(Vec<OsString>),
}

/// The commands that ask no server, and know none.
const SERVING: &[&str] = &[
    "serve",
    "verify",
    "export",
    "import",
    "mark-restored",
    "openapi",
    #[cfg(feature = "cli")]
    "completions",
];

#[derive(clap::Subcommand)]
enum RulesCommand {
    #[cfg(feature = "cli")]
    #[command(flatten)]
    Client(limina_cli::RulesCommand),
    /// Check a rules file, or a configuration of Envoy, without a server: prints its mistakes with their lines
    Check(rules::CheckArgs),
}

#[derive(clap::Subcommand)]
enum TokenCommand {
    /// Make a token: prints it once, with the block for the file of --tokens
    New(access::NewTokenArgs),
    /// List the tokens of a file: names, rights, validity
    Ls(access::ListTokensArgs),
}

fn main() -> ExitCode {
    let mut command = limina_cli::arranged(Cli::command(), SERVING);
    let matches = command.get_matches_mut();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit());
    let result = refuse_misplaced(&cli, &matches)
        .map_or_else(|failed| Ok(limina_cli::report(failed)), |()| run(cli, command));
    let exit = result.unwrap_or_else(|error| {
        progress::say(&chain(&*error));
        Exit::Error
    });
    exit.into()
}

fn run(cli: Cli, command: clap::Command) -> Result<Exit, Box<dyn Error>> {
    if is_about_data(cli.command.as_ref()) {
        // Only the server's user may read the files of its data, which contain secrets of clients. The table's library leaves their mode
        // to the process.
        rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    }
    let done = match cli.command {
        None => serve::serve(cli.serve),
        Some(Command::Serve(args)) => serve::serve(args),
        Some(Command::Verify(args)) => verify::verify(args),
        Some(Command::Export(args)) => moving::export(args),
        Some(Command::Import(args)) => moving::import(args),
        Some(Command::MarkRestored(args)) => restored::mark_restored(args),
        Some(Command::Rules(RulesCommand::Check(args))) => rules::check(args),
        Some(Command::Token(TokenCommand::New(args))) => access::new_token(args),
        Some(Command::Openapi) => print(limina_server::OPENAPI_JSON.trim_end()),
        Some(Command::Token(TokenCommand::Ls(args))) => return access::list_tokens(args, &cli.options),
        #[cfg(feature = "cli")]
        Some(Command::Completions(args)) => return Ok(limina_cli::write_completions(args.shell, command)),
        #[cfg(feature = "cli")]
        Some(Command::Rules(RulesCommand::Client(rules))) => {
            return Ok(limina_cli::run(&cli.options, limina_cli::Command::Rules(rules)));
        }
        #[cfg(feature = "cli")]
        Some(Command::Client(client)) => return Ok(limina_cli::run(&cli.options, client)),
        #[cfg(not(feature = "cli"))]
        Some(Command::NotBuilt(words)) => return Ok(limina_cli::report(not_built(&words, command))),
    };
    done.map(|()| Exit::Yes)
}

/// The answer to a word that is no command of this build.
#[cfg(not(feature = "cli"))]
fn not_built(words: &[OsString], mut command: clap::Command) -> Failed {
    let word = words.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    if limina_cli::grouped().any(|known| known == word) {
        let how = "`cargo build --release -p limina --features cli` builds the whole command line";
        return Failed::usage(format!("`limina {word}` is not in this build, which only serves; {how}"));
    }
    let message = format!("unrecognized subcommand '{word}'");
    command.error(clap::error::ErrorKind::InvalidSubcommand, message).exit()
}

/// Whether the command writes a store's files. It starts no program that would inherit the mode of new files.
fn is_about_data(command: Option<&Command>) -> bool {
    use Command::{Import, MarkRestored, Serve, Verify};
    command.is_none_or(|command| matches!(command, Serve(_) | Import(_) | MarkRestored(_) | Verify(_)))
}

/// Refuses options that the command has no use for. They belong to the whole command line, because `limina --listen :80` serves,
/// and `limina -n shop check …` asks.
fn refuse_misplaced(cli: &Cli, matches: &ArgMatches) -> Result<(), Failed> {
    match &cli.command {
        None
        | Some(
            Command::Serve(_)
            | Command::Verify(_)
            | Command::Export(_)
            | Command::Import(_)
            | Command::MarkRestored(_)
            | Command::Openapi
            | Command::Rules(RulesCommand::Check(_))
            | Command::Token(TokenCommand::New(_)),
        ) => limina_cli::refuse_options(matches, &[])?,
        Some(Command::Token(TokenCommand::Ls(_))) => limina_cli::refuse_options(matches, &["output"])?,
        #[cfg(feature = "cli")]
        Some(Command::Completions(_)) => limina_cli::refuse_options(matches, &[])?,
        #[cfg(feature = "cli")]
        Some(Command::Rules(RulesCommand::Client(_)) | Command::Client(_)) => {}
        #[cfg(not(feature = "cli"))]
        Some(Command::NotBuilt(_)) => {}
    }
    let serve = settings::Settings::augment_args(clap::Command::new("serve"));
    let given = |arg: &&clap::Arg| {
        let id = arg.get_id().as_str();
        matches.try_contains_id(id).is_ok() && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    match serve.get_arguments().find(given) {
        Some(arg) if cli.command.is_some() => {
            let flag = arg.get_long().unwrap_or_default();
            let message = format!("--{flag} is an option of `limina serve`, and stands behind the command");
            Err(Failed::usage(message))
        }
        _ => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_first_page_of_help_shows_every_command() {
        let command = limina_cli::arranged(Cli::command(), SERVING);
        let commands: BTreeSet<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        let shown: BTreeSet<&str> = limina_cli::grouped().filter(|name| *name != "help").collect();
        match cfg!(feature = "cli") {
            true => assert_eq!(commands, shown),
            false => assert!(commands.is_subset(&shown)),
        }
        command.debug_assert();
    }
}
