//! Runs other programs, and knows where the workspace is.

use cargo_metadata::MetadataCommand;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) type Outcome = Result<(), String>;
/// Variables to set for a program.
pub(crate) type Environment = Vec<(&'static str, String)>;

pub(crate) fn cargo(args: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO"));
    command.args(args);
    run(command)
}

pub(crate) fn run(mut command: Command) -> Outcome {
    println!("xtask: {}", describe(&command));
    let status =
        command.current_dir(root()).status().map_err(|error| format!("{}: {error}", describe(&command)))?;
    if status.success() { Ok(()) } else { Err(format!("failed: {}", describe(&command))) }
}

pub(crate) fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args()).map(|word| word.to_string_lossy());
    words.collect::<Vec<_>>().join(" ")
}

pub(crate) fn words(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// The folder that cargo builds in.
pub(crate) fn target_directory() -> Result<PathBuf, String> {
    let metadata = MetadataCommand::new().no_deps().exec().map_err(|error| error.to_string())?;
    Ok(metadata.target_directory.into_std_path_buf())
}

/// The workspace's folder.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("xtask is two folders below the root").to_path_buf()
}
