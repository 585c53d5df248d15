//! Rivals that are crates. They run in their own program (`crates/rivals`), which is no part of the workspace.

use crate::{Failed, measure::Rated};
use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

/// The result of one rival, on one processor.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) clients: usize,
    pub(crate) rate: f64,
    pub(crate) resident: Option<u64>,
}

impl Rated for Figure {
    fn rate(&self) -> f64 {
        self.rate
    }
}

/// Measures a rival with this many clients.
pub(crate) fn measure(name: &str, clients: usize, time: Duration) -> Result<Figure, Failed> {
    let mut command = Command::new(program()?);
    command.args([name, &clients.to_string(), &time.as_secs_f64().to_string()]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8(output.stdout)?;
    if !output.status.success() {
        return Err(format!("{name} failed: {}", output.status).into());
    }
    // The number of checks, the time that they took in nanoseconds, and resident bytes.
    let numbers: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let &[checks, nanos, resident] = numbers.as_slice() else {
        return Err(format!("not the figures of a rival: {text:?}").into());
    };
    Ok(Figure {
        name: name.to_owned(),
        clients,
        rate: checks as f64 / Duration::from_nanos(nanos).as_secs_f64(),
        resident: (resident > 0).then_some(resident),
    })
}

/// The program of these rivals.
pub(crate) fn program() -> Result<PathBuf, Failed> {
    let program = std::env::current_exe()?.with_file_name("limina-rivals");
    match program.is_file() {
        true => Ok(program),
        false => Err(format!("there is no {}: `cargo xtask rivals` builds it", program.display()).into()),
    }
}
