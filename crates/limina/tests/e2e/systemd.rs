//! The systemd unit of docs/operations.md.

use std::{fs, process::Command};

use tempfile::TempDir;

/// From 0 (closed) to 10 (open), in tenths.
const MOST_EXPOSED: u32 = 25;

#[test]
fn the_unit_of_the_guide_is_hardened() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md")).unwrap();
    let (_, unit) = page.split_once("```ini\n").expect("the page has a unit");
    let (unit, _) = unit.split_once("```").expect("the unit ends");
    let home = TempDir::new().unwrap();
    let path = home.path().join("limina.service");
    fs::write(&path, unit).unwrap();
    let analyze = Command::new("systemd-analyze").args(["security", "--offline=true"]).arg(&path).output();
    let Ok(analyze) = analyze else {
        eprintln!("skipped: systemd-analyze is not installed");
        return;
    };
    let words = String::from_utf8_lossy(&analyze.stdout);
    let (_, rating) =
        words.split_once("exposure level for limina.service: ").unwrap_or_else(|| panic!("{analyze:?}"));
    let rating = rating.split_whitespace().next().unwrap();
    let tenths: u32 = rating.replace('.', "").parse().unwrap();
    assert!(tenths <= MOST_EXPOSED, "{words}");
    assert!(
        page.contains(&format!("rates this unit at {rating} ")),
        "the page says another rating than {rating}"
    );
}
