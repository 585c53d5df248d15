//! What is checked inside `crates/server`: which files may choose the status of an error.

use crate::sources::{read, rust_files, without_comments};
use std::path::Path;

const SERVER: &str = "crates/server/src";

/// Where a status of 400 or more may be named. `peers` is not for clients.
const ERROR_STATUSES: &[&str] = &["http/problem.rs", "http/status/", "peers/"];

/// The statuses that a route may name.
const NO_ERROR: &[&str] = &["OK", "CREATED", "ACCEPTED", "NO_CONTENT", "SWITCHING_PROTOCOLS", "NOT_MODIFIED"];

pub(crate) fn check(root: &Path) -> Result<(), String> {
    let source = root.join(SERVER);
    let mut problems = Vec::new();
    for file in rust_files(&source)? {
        let inside = file.strip_prefix(&source).map_err(|error| error.to_string())?;
        let inside = inside.to_string_lossy();
        problems.extend(
            judge(&inside, &read(&file)?).into_iter().map(|problem| format!("{SERVER}/{inside}: {problem}")),
        );
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(problems.join("\n")),
    }
}

fn judge(file: &str, text: &str) -> Vec<String> {
    let text = without_comments(text);
    let may_name_errors = ERROR_STATUSES.iter().any(|place| file.starts_with(place));
    text.split("StatusCode::")
        .skip(1)
        .map(|rest| rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect::<String>())
        .filter(|status| !may_name_errors && !status.is_empty() && !NO_ERROR.contains(&status.as_str()))
        .map(|status| {
            format!("must not name StatusCode::{status}: http/status and http/problem.rs choose it")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_status_names_errors() {
        #[track_caller]
        fn check(file: &str, text: &str, expect: usize) {
            assert_eq!(judge(file, text).len(), expect, "{file}: {text}");
        }
        check("http/ledger.rs", "(StatusCode::OK, StatusCode::CREATED, StatusCode::from_u16(404))", 0);
        check("http/console.rs", "StatusCode::NOT_MODIFIED", 0);
        check("http/ledger.rs", "(StatusCode::CONFLICT, StatusCode::NOT_FOUND)", 2);
        check("http/status/limiter.rs", "StatusCode::CONFLICT", 0);
    }
}
