//! Exit codes, which scripts rely on.

use std::process::ExitCode;

/// How a command ends. The numbers are an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The answer is yes, or the command has done what it was asked for.
    Yes,
    /// Something else went wrong.
    Error,
    /// The command line is wrong.
    Usage,
    /// The answer is no: refused, or different.
    No,
    /// What the command names does not exist.
    NotFound,
    /// The server was not reached, or could not answer (503).
    Unavailable,
    /// The token is missing, is not known, or lacks a right.
    Forbidden,
    /// The command would destroy something, and `--yes` was not given.
    NeedsYes,
    /// `lock` and `lease`: what was asked for was not obtained, and the program was not started.
    NotObtained,
    /// `lock` and `lease`: what the program relied on was lost while the program ran.
    Lost,
    /// The code of a program that `lock` or `lease` started, or 128 and the number of a signal.
    Program(u8),
}

impl Exit {
    /// The code as a number.
    pub fn code(self) -> u8 {
        match self {
            Exit::Yes => 0,
            Exit::Error => 1,
            Exit::Usage => 2,
            Exit::No => 3,
            Exit::NotFound => 4,
            Exit::Unavailable => 5,
            Exit::Forbidden => 6,
            Exit::NeedsYes => 7,
            Exit::NotObtained => 75,
            Exit::Lost => 76,
            Exit::Program(code) => code,
        }
    }

    /// Yes or no.
    pub fn answer(yes: bool) -> Exit {
        if yes { Exit::Yes } else { Exit::No }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        exit.code().into()
    }
}

/// Why a command failed, and with which code it exits.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failed {
    /// The code.
    pub exit: Exit,
    /// What happened, for people.
    pub message: String,
    /// The document of a refusal, for programs: a refusal is an answer.
    pub document: Option<String>,
}

impl Failed {
    /// A failure without a document.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failed {
        Failed { exit, message: message.into(), document: None }
    }

    /// The command line is wrong.
    pub fn usage(message: impl Into<String>) -> Failed {
        Failed::new(Exit::Usage, message)
    }

    /// Something else went wrong.
    pub fn error(message: impl Into<String>) -> Failed {
        Failed::new(Exit::Error, message)
    }

    /// The command destroys something, and the caller has not said `--yes`.
    pub fn needs_yes(what: impl std::fmt::Display) -> Failed {
        Failed::new(Exit::NeedsYes, format!("{what}: add --yes to do it"))
    }
}
