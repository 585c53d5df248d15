//! The first page of help: commands in groups, one line each.

use crate::{Failed, options::OPTION_IDS};
use clap::{ArgMatches, Command, parser::ValueSource};
use std::fmt::Write;

/// The groups of commands, in the order of the first page. A test of the binary holds that every command is in one.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Ask", &["check", "explain", "lock", "lease"]),
    ("Look", &["status", "top", "refusals", "ns", "audit"]),
    ("Manage", &["rules", "overrides", "leases", "locks", "ledger", "decisions", "events"]),
    ("Serve", &["serve", "verify", "export", "import", "mark-restored", "token"]),
    ("Tools", &["completions", "openapi", "help"]),
];

/// The names of all commands that the first page of help shows.
pub fn grouped() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|(_, names)| names.iter().copied())
}

/// Arranges the help of the whole command line. `serving` are the commands of the binary that ask no server: options for asking
/// one are hidden there, and refused by [`refuse_options`].
pub fn arranged(command: Command, serving: &[&str]) -> Command {
    let mut command = command;
    let options: Vec<clap::Arg> =
        command.get_arguments().filter(|arg| is_option(arg.get_id().as_str())).cloned().collect();
    let is_global = |id: &str| is_option(id) || ["help", "version"].contains(&id);
    // Bare `limina` takes the options of `serve`. They fill two screens, and `limina serve --help` shows them.
    command = command.mut_args(|arg| {
        let id = arg.get_id().as_str();
        let hide = !is_global(id) || (is_option(id) && cfg!(not(feature = "client")));
        arg.hide(hide)
    });
    for name in serving {
        command = command.mut_subcommand(name, |sub| {
            options.iter().fold(sub, |sub, option| sub.arg(option.clone().hide(true).global(true)))
        });
    }
    let mut text = String::new();
    let width = command.get_subcommands().map(|sub| sub.get_name().len()).max().unwrap_or(0);
    for (group, names) in GROUPS {
        let is_built = |name: &&&str| command.find_subcommand(name).is_some() || (**name == "help");
        let mut names = names.iter().filter(is_built).peekable();
        if names.peek().is_none() {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\x1b[1m\x1b[4m{group}:\x1b[0m");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let about = about.unwrap_or_else(|| "Show the help of a command".to_owned());
            let _ = writeln!(text, "  \x1b[1m{name:width$}\x1b[0m  {about}");
        }
        text.push('\n');
    }
    command.help_template(format!(
        "{{about}}\n\n\x1b[1m\x1b[4mUsage:\x1b[0m limina [COMMAND] [OPTIONS]\n\n\
         Without a command, limina serves: `limina serve --help` lists the options.\n\n{text}{{options}}"
    ))
}

fn is_option(id: &str) -> bool {
    OPTION_IDS.contains(&id)
}

/// Refuses options for asking a server, for a command that asks none. `allowed` are those that it has a use for.
pub fn refuse_options(matches: &ArgMatches, allowed: &[&str]) -> Result<(), Failed> {
    let given = |id: &&&str| {
        matches.try_contains_id(id).is_ok() && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    match OPTION_IDS.iter().filter(|id| !allowed.contains(id)).find(given) {
        Some(option) => Err(Failed::usage(format!("--{option} is for commands that ask a server"))),
        None => Ok(()),
    }
}
