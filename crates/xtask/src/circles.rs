//! Checks that only a few files of a crate need each other, because such files can be understood only together.

use crate::paths::{Edge, edges};
use cargo_metadata::MetadataCommand;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// The most files that may use each other in a circle.
const MOST: usize = 4;

/// The bigger circles that are left, by the main file of their crate. This list may only shrink.
const LEFT: &[(&str, &str)] = &[
    (
        "crates/engine/src/lib.rs",
        "limiter/backfill.rs limiter/check.rs limiter/check_set.rs limiter/command.rs limiter/counters.rs \
         limiter/finish.rs limiter/garbage.rs limiter/group_list.rs limiter/leases.rs limiter/lists.rs \
         limiter/mod.rs limiter/overrides.rs limiter/plan.rs limiter/prepare.rs limiter/prepare_set.rs \
         limiter/reply.rs limiter/resident_bytes.rs limiter/rule.rs limiter/rule_index.rs \
         limiter/rule_sets.rs limiter/rules.rs limiter/state.rs limiter/touched_groups.rs \
         limiter/waiting.rs",
    ),
];

type Files<'a> = BTreeSet<&'a str>;

pub(crate) fn check(root: &Path) -> Result<(), String> {
    let metadata = MetadataCommand::new().no_deps().exec().map_err(|error| error.to_string())?;
    let targets = metadata.packages.iter().flat_map(|package| &package.targets);
    let mut crates: BTreeMap<String, Vec<Files<'_>>> = targets
        .filter(|target| target.is_lib() || target.is_bin())
        .filter_map(|target| target.src_path.as_std_path().strip_prefix(root).ok())
        .map(|main_file| (main_file.display().to_string(), vec![]))
        .collect();
    let mut problems = Vec::new();
    for (main_file, files) in LEFT {
        match crates.get_mut(*main_file) {
            Some(left) => left.push(files.split_whitespace().collect()),
            None => problems.push(format!("{LIST} lists {main_file}, which is not the main file of a crate")),
        }
    }
    for (main_file, left) in &crates {
        let problems_here = judge(&edges(&root.join(main_file))?, left);
        problems.extend(problems_here.into_iter().map(|problem| format!("{main_file}: {problem}")));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

const LIST: &str = "crates/xtask/src/circles.rs";

/// What is wrong with the circles of a crate, if these circles are listed.
fn judge(edges: &[Edge], left: &[Files<'_>]) -> Vec<String> {
    let found: Vec<Files<'_>> = circles(edges).into_iter().filter(|circle| circle.len() > MOST).collect();
    let new = found.iter().filter(|circle| !left.iter().any(|left| circle.is_subset(left)));
    let new = new.map(|circle| {
        let uses: Vec<String> = edges
            .iter()
            .filter(|edge| circle.contains(edge.from.as_str()) && circle.contains(edge.to.as_str()))
            .map(|edge| format!("\n  {} uses {}", edge.from, edge.path))
            .collect();
        format!("these {} files use each other, at most {MOST} may:{}", circle.len(), uses.concat())
    });
    let gone = left.iter().filter(|left| !found.contains(left)).map(|left| {
        let parts = found.iter().filter(|circle| circle.is_subset(left));
        let parts: Vec<String> = parts.map(|circle| format!("\n  {circle:?}")).collect();
        match parts.is_empty() {
            true => format!("remove this circle from {LIST}, it is gone: {left:?}"),
            false => {
                format!("replace this circle in {LIST}: {left:?}. What is left of it:{}", parts.concat())
            }
        }
    });
    new.chain(gone).collect()
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
    fn check(uses: &str, left: &[&str], expect: &[&str]) {
        let edge = |pair: &str| Edge { from: pair[..1].into(), to: pair[1..].into(), path: pair.into() };
        let edges: Vec<Edge> = uses.split(' ').map(edge).collect();
        let left: Vec<Files<'_>> = left.iter().map(|files| files.split(' ').collect()).collect();
        let problems = judge(&edges, &left);
        assert_eq!(problems.len(), expect.len(), "{problems:?}");
        for (problem, expect) in problems.iter().zip(expect) {
            assert!(problem.contains(expect), "{problem}");
        }
    }

    #[test]
    fn a_circle_of_few_files_is_permitted() {
        check("ab bc cd da ae ef", &[], &[]);
    }

    #[test]
    fn a_larger_circle_fails_with_its_uses() {
        check(
            "ab bc cd de ea ax",
            &[],
            &["these 5 files use each other, at most 4 may:\n  a uses ab\n  b uses bc"],
        );
        check("ab bc cd de ea cf fc", &["a b c d e"], &["these 6 files", "remove this circle"]);
    }

    #[test]
    fn a_listed_circle_is_permitted_until_it_is_smaller() {
        check("ab bc cd de ea", &["a b c d e"], &[]);
        check(
            "ab bc cd de ea",
            &["a b c d e f"],
            &["What is left of it:\n  {\"a\", \"b\", \"c\", \"d\", \"e\"}"],
        );
        check("ab bc cd da", &["a b c d e"], &["remove this circle"]);
    }

    #[test]
    fn circles_through_other_files_are_one() {
        check("ab ba bc cd db ce ec", &[], &["these 5 files"]);
        check("ab ba bc cd dc", &[], &[]);
    }
}
