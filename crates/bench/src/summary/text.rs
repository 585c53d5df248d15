//! The summary as text in Markdown.

use super::{Bar, Comparison, ECHO, Family, Role, Summary, chart, grouped};
use crate::frame::{Table, optional};

pub(super) fn write(summary: &Summary) -> String {
    let Summary { date, commit, build, machine, rivals, command, families } = summary;
    let rivals = if rivals.is_empty() { "none".to_owned() } else { rivals.join(", ") };
    let mut text = format!(
        "One run of `{command}` on {date}: commit {commit}, build `{build}`. Machine: {machine}. Rivals: {rivals}. Other \
         programs and virtual machines took {} processors meanwhile.\n\n",
        others(families)
    );
    let mut table = Table::new(
        "family | work | clients × ops a request | Limina ops/s | p99 ms | echo ops/s | Limina ÷ echo | rival | its ops/s | Limina ÷ rival",
    );
    table.left = 2;
    for family in families {
        table.rows.extend(rows(family));
    }
    text.push_str(&table.to_string());
    for family in families {
        text.push_str(&format!("\n![{}](benchmarks/{})\n", chart::title(&family.name), chart::file(family)));
    }
    text.push_str("\nThis was the same as these commands, one after the other:\n\n```console\n");
    for family in families {
        text.push_str(&format!("$ {}\n", family.command));
    }
    text.push_str("```\n");
    text
}

/// The least and the most that other programs and virtual machines took while a family was measured.
fn others(families: &[Family]) -> String {
    let others =
        || families.iter().filter_map(|family| family.others_percent).map(|percent| percent as f64 / 100.0);
    let (least, most) = (others().reduce(f64::min), others().reduce(f64::max));
    format!("{} to {}", optional(least, 2), optional(most, 2))
}

/// A row for each rival of each work. What a row has in common with the one above it is left out.
fn rows(family: &Family) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for comparison in &family.comparisons {
        let mut rivals = comparison.beside.iter().filter(|bar| bar.role == Role::Rival);
        let mut cells = vec![if rows.is_empty() { family.name.clone() } else { String::new() }];
        cells.extend(work(comparison));
        cells.extend(rival(&comparison.limina, rivals.next()));
        rows.push(cells);
        rows.extend(rivals.map(|bar| {
            let mut cells = vec![String::new(); 7];
            cells.extend(rival(&comparison.limina, Some(bar)));
            cells
        }));
    }
    rows
}

/// The cells of the work itself, and of `echo`.
fn work(comparison: &Comparison) -> [String; 6] {
    let Comparison { work, load, limina, beside } = comparison;
    let echo = beside.iter().find(|bar| bar.contender == ECHO);
    [
        work.clone(),
        load.clone(),
        format!("**{}**", grouped(limina.rate)),
        limina.p99_ms().unwrap_or_default(),
        echo.map(|echo| grouped(echo.rate)).unwrap_or_default(),
        echo.map(|echo| ratio(limina, echo)).unwrap_or_default(),
    ]
}

fn rival(limina: &Bar, rival: Option<&Bar>) -> [String; 3] {
    let cells = |rival: &Bar| [rival.contender.clone(), grouped(rival.rate), ratio(limina, rival)];
    rival.map(cells).unwrap_or_default()
}

fn ratio(limina: &Bar, other: &Bar) -> String {
    format!("{:.2}", limina.rate as f64 / other.rate as f64)
}
