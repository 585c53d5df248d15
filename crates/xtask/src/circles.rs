//! Checks that only a few files of a crate need each other, because such files can be understood only together.

use crate::paths::{Edge, edges};
use cargo_metadata::MetadataCommand;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// The most files that may use each other in a circle.
const MOST: usize = 4;

type Files<'a> = BTreeSet<&'a str>;

pub(crate) fn check(root: &Path) -> Result<(), String> {
    let metadata = MetadataCommand::new().no_deps().exec().map_err(|error| error.to_string())?;
    let targets = metadata.packages.iter().flat_map(|package| &package.targets);
    let main_files = targets
        .filter(|target| target.is_lib() || target.is_bin())
        .filter_map(|target| target.src_path.as_std_path().strip_prefix(root).ok());
    let mut problems = Vec::new();
    for main_file in main_files {
        let found = judge(&edges(&root.join(main_file))?);
        problems.extend(found.into_iter().map(|problem| format!("{}: {problem}", main_file.display())));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

/// The circles of a crate that are too large.
fn judge(edges: &[Edge]) -> Vec<String> {
    let too_large = circles(edges).into_iter().filter(|circle| circle.len() > MOST);
    let problems = too_large.map(|circle| {
        let uses: Vec<String> = edges
            .iter()
            .filter(|edge| circle.contains(edge.from.as_str()) && circle.contains(edge.to.as_str()))
            .map(|edge| format!("\n  {} uses {}", edge.from, edge.path))
            .collect();
        format!("these {} files use each other, at most {MOST} may:{}", circle.len(), uses.concat())
    });
    problems.collect()
}

/// The largest sets of files in which each file uses each other file, directly or through files between them.
fn circles(edges: &[Edge]) -> Vec<Files<'_>> {
    let mut uses: BTreeMap<&str, Files<'_>> = BTreeMap::new();
    for edge in edges {
        uses.entry(&edge.from).or_default().insert(&edge.to);
    }
    let reached: BTreeMap<&str, Files<'_>> = uses.keys().map(|file| (*file, reach(file, &uses))).collect();
    let circles: BTreeSet<Files<'_>> = reached
        .iter()
        .map(|(file, others)| {
            let uses_back = |other: &&str| reached.get(other).is_some_and(|back| back.contains(file));
            others.iter().copied().filter(uses_back).collect()
        })
        .collect();
    circles.into_iter().filter(|circle| !circle.is_empty()).collect()
}

/// All files that a file uses, directly or through others.
fn reach<'a>(file: &str, uses: &BTreeMap<&'a str, Files<'a>>) -> Files<'a> {
    let mut reached = Files::new();
    let mut ahead = vec![file];
    while let Some(file) = ahead.pop() {
        for used in uses.get(file).into_iter().flatten() {
            if reached.insert(*used) {
                ahead.push(used);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files are letters: `ab` says that a uses b.
    #[track_caller]
    fn check(uses: &str, expect: Option<&str>) {
        let edge = |pair: &str| Edge { from: pair[..1].into(), to: pair[1..].into(), path: pair.into() };
        let edges: Vec<Edge> = uses.split(' ').map(edge).collect();
        let problems = judge(&edges);
        assert_eq!(problems.len(), usize::from(expect.is_some()), "{problems:?}");
        assert!(problems.iter().all(|problem| problem.contains(expect.unwrap_or_default())), "{problems:?}");
    }

    #[test]
    fn a_circle_of_few_files_is_permitted() {
        check("ab bc cd da ae ef", None);
    }

    #[test]
    fn a_larger_circle_fails_with_its_uses() {
        check(
            "ab bc cd de ea ax",
            Some("these 5 files use each other, at most 4 may:\n  a uses ab\n  b uses bc"),
        );
        check("ab bc cd de ea cf fc", Some("these 6 files"));
    }

    #[test]
    fn circles_through_other_files_are_one() {
        check("ab ba bc cd db ce ec", Some("these 5 files"));
        check("ab ba bc cd dc", None);
    }
}
