//! The chart of a family: a group of horizontal bars for each work, as an SVG that also reads well on a dark page.

use super::{Bar, Comparison, Family, Role, Summary, grouped};
use std::fmt::{self, Write};

const WIDTH: usize = 760;
const MARGIN: usize = 20;
/// Where bars begin; the names of the contenders are left of it.
const BARS: usize = 190;
/// The longest bar of each group; its figures are right of it.
const LONGEST: usize = 370;
/// The distance between two lines of text, and between two bars.
const LINE: usize = 20;
const BAR: usize = 12;

/// The background is drawn, too: a page need not know whether the chart is dark.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#1f2328}\
.title{font-size:16px;font-weight:600}.work{font-weight:600}.small{fill:#59636e}\
.page{fill:#ffffff;stroke:#d1d9e0}.limina{fill:#0969da}.rival{fill:#bc4c00}.bound{fill:#9198a1}\
@media(prefers-color-scheme:dark){\
text{fill:#f0f6fc}.small{fill:#9198a1}\
.page{fill:#0d1117;stroke:#3d444d}.limina{fill:#4493f8}.rival{fill:#f0883e}.bound{fill:#656c76}}";

pub(super) fn file(family: &Family) -> String {
    format!("{}.svg", family.name)
}

pub(super) fn title(family: &str) -> String {
    let first = family.chars().take(1).flat_map(char::to_uppercase);
    first.chain(family.chars().skip(1)).chain(": operations a second".chars()).collect()
}

pub(super) fn draw(summary: &Summary, family: &Family) -> Result<String, fmt::Error> {
    let lines = family.comparisons.iter().map(|comparison| 2 + comparison.beside.len()).sum::<usize>();
    let groups = family.comparisons.len();
    let height = 2 * MARGIN + 2 * LINE + lines * LINE + groups * LINE / 2;
    let mut svg = String::new();
    writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-labelledby="title desc">"#
    )?;
    writeln!(svg, r#"<title id="title">{}</title>"#, escaped(&title(&family.name)))?;
    writeln!(svg, r#"<desc id="desc">{}</desc>"#, escaped(&description(summary, family)))?;
    writeln!(svg, "<style>{STYLE}</style>")?;
    let (width, inner) = (WIDTH - 1, height - 1);
    writeln!(svg, r#"<rect class="page" x="0.5" y="0.5" width="{width}" height="{inner}" rx="6"/>"#)?;
    let mut y = MARGIN + LINE / 2;
    text(&mut svg, "title", MARGIN, y, &title(&family.name))?;
    y += LINE;
    text(
        &mut svg,
        "small",
        MARGIN,
        y,
        "Each group has its own scale. Beside a bar: operations a second · p99 latency.",
    )?;
    y += LINE;
    for comparison in &family.comparisons {
        y += LINE / 2;
        let work = format!("{} ({})", comparison.work, comparison.load);
        text(&mut svg, "work", MARGIN, y, &work)?;
        y += LINE;
        let most = comparison.bars().map(|bar| bar.rate).max().unwrap_or(0).max(1);
        for bar in comparison.bars() {
            draw_bar(&mut svg, bar, most, y)?;
            y += LINE;
        }
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// One bar, whose text stands on the line `y`.
fn draw_bar(svg: &mut String, bar: &Bar, most: u64, y: usize) -> fmt::Result {
    let class = match bar.role {
        Role::Limina => "limina",
        Role::Rival => "rival",
        Role::Bound => "bound",
    };
    let width = ((LONGEST as f64 * bar.rate as f64 / most as f64).round() as usize).max(1);
    text(svg, "", MARGIN, y, &bar.contender)?;
    let top = y - BAR + 2;
    writeln!(svg, r#"<rect class="{class}" x="{BARS}" y="{top}" width="{width}" height="{BAR}" rx="2"/>"#)?;
    text(svg, "", BARS + width + 8, y, &figures(bar))
}

fn figures(bar: &Bar) -> String {
    let rate = grouped(bar.rate);
    bar.p99_ms().map_or_else(|| rate.clone(), |p99| format!("{rate} · {p99} ms"))
}

/// The same for readers who cannot see the bars.
fn description(summary: &Summary, family: &Family) -> String {
    let group = |comparison: &Comparison| {
        let bars: Vec<_> =
            comparison.bars().map(|bar| format!("{} {}", bar.contender, grouped(bar.rate))).collect();
        format!("{}: {}.", comparison.work, bars.join(", "))
    };
    let groups: Vec<_> = family.comparisons.iter().map(group).collect();
    format!("{} Measured on {}, commit {}.", groups.join(" "), summary.date, summary.commit)
}

fn text(svg: &mut String, class: &str, x: usize, y: usize, text: &str) -> fmt::Result {
    let class = if class.is_empty() { String::new() } else { format!(r#" class="{class}""#) };
    writeln!(svg, r#"<text{class} x="{x}" y="{y}">{}</text>"#, escaped(text))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
