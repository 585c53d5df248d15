//! Completions for shells.

use crate::{Exit, Failed, report};
use clap::Command;
use std::io::Write;

/// Prints the completions of a shell.
pub fn write_completions(shell: clap_complete::Shell, mut command: Command) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "limina", &mut script);
    match std::io::stdout().write_all(&script) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            report(Failed::error(format!("standard output: {error}")))
        }
        _ => Exit::Yes,
    }
}

/// The arguments of `completions`.
#[derive(clap::Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}
