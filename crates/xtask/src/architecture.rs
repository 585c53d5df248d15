//! Checks that the paths in ARCHITECTURE.md and the links of all documents exist, and that ARCHITECTURE.md names every
//! crate.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut problems = Vec::new();
    let architecture = read(&root.join("ARCHITECTURE.md"))?;
    let named: BTreeSet<&str> =
        code_spans(&architecture).filter(|span| span.starts_with("crates/")).collect();
    for path in &named {
        if !root.join(path).exists() {
            problems.push(format!("ARCHITECTURE.md names {path}, which does not exist"));
        }
    }
    for entry in list(&root.join("crates"))? {
        let path = format!("crates/{}", entry.file_name().unwrap_or_default().to_string_lossy());
        if !named.contains(path.as_str()) {
            problems.push(format!("ARCHITECTURE.md does not name {path}"));
        }
    }
    for document in list(root)?.into_iter().chain(list(&root.join("docs"))?) {
        if document.extension().is_some_and(|extension| extension == "md") {
            let folder = document.parent().unwrap_or(root);
            for link in links(&read(&document)?) {
                if !folder.join(&link).exists() {
                    problems.push(format!("{} links to {link}, which does not exist", document.display()));
                }
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

/// The texts between single backticks.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// The targets of links into the repository, without their anchors.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    local.filter_map(|target| target.split('#').next()).map(str::to_owned).collect()
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_links_are_found() {
        let text = "See `crates/engine` and [the guide](docs/ledger.md#holds), not [this](https://x.y) or [that](#z).";
        assert_eq!(code_spans(text).collect::<Vec<_>>(), ["crates/engine"]);
        assert_eq!(links(text), ["docs/ledger.md"]);
    }
}
