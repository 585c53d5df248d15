//! The text and the charts of the summary, and that those of `docs/benchmarks.md` belong to the stored figures.

use super::*;
use std::path::PathBuf;

fn bar(contender: &str, role: Role, rate: u64, p99_micros: Option<u64>) -> Bar {
    Bar { contender: contender.into(), role, rate, p99_micros }
}

fn example() -> Summary {
    let checks = Comparison {
        work: "check".into(),
        load: "64 × 1".into(),
        limina: bar("Limina", Role::Limina, 50_000, Some(2_500)),
        beside: vec![
            bar("Limina in process", Role::Bound, 1_000_000, Some(90)),
            bar(ECHO, Role::Bound, 80_000, Some(1_000)),
            bar("Redis", Role::Rival, 40_000, Some(3_004)),
            bar("P&G", Role::Rival, 100, None),
        ],
    };
    let direct = Comparison {
        work: "check, called directly".into(),
        load: "1 core".into(),
        limina: bar("Limina's engine", Role::Limina, 999, None),
        beside: Vec::new(),
    };
    Summary {
        date: "2026-01-02".into(),
        commit: "0123456789".into(),
        build: "release".into(),
        machine: "a processor, 2 cores".into(),
        rivals: vec!["Redis 7.0".into()],
        command: "limina-bench all --seconds=5".into(),
        families: vec![Family {
            name: "limiter".into(),
            command: "limina-bench limiter --seconds=5".into(),
            others_percent: Some(7),
            comparisons: vec![checks, direct],
        }],
    }
}

#[test]
fn the_text_shows_limina_beside_echo_and_each_rival() {
    let expect = "\
One run of `limina-bench all --seconds=5` on 2026-01-02: commit 0123456789, build `release`. Machine: a processor, 2 cores. Rivals: Redis 7.0. Other programs and virtual machines took 0.07 to 0.07 processors meanwhile.

| family  | work                   | clients × ops a request | Limina ops/s | p99 ms | echo ops/s | Limina ÷ echo | rival | its ops/s | Limina ÷ rival |
|---------|------------------------|------------------------:|-------------:|-------:|-----------:|--------------:|------:|----------:|---------------:|
| limiter | check                  |                  64 × 1 |   **50,000** |   2.50 |     80,000 |          0.62 | Redis |    40,000 |           1.25 |
|         |                        |                         |              |        |            |               |   P&G |       100 |         500.00 |
|         | check, called directly |                  1 core |      **999** |        |            |               |       |           |                |

![Limiter: operations a second](benchmarks/limiter.svg)

This was the same as these commands, one after the other:

```console
$ limina-bench limiter --seconds=5
```
";
    assert_eq!(text::write(&example()), expect);
}

#[test]
fn a_chart_has_a_bar_for_each_contender() {
    let summary = example();
    let chart = chart::draw(&summary, &summary.families[0]).unwrap();
    let (head, bars) = chart.split_once("<style>").unwrap();
    assert_eq!(
        head,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 260" width="760" height="260" role="img" aria-labelledby="title desc">
<title id="title">Limiter: operations a second</title>
<desc id="desc">check: Limina 50,000, Limina in process 1,000,000, echo 80,000, Redis 40,000, P&amp;G 100. check, called directly: Limina's engine 999. Measured on 2026-01-02, commit 0123456789.</desc>
"#
    );
    let (_, bars) = bars.split_once("</style>\n").unwrap();
    let expect = r#"<rect class="page" x="0.5" y="0.5" width="759" height="259" rx="6"/>
<text class="title" x="20" y="30">Limiter: operations a second</text>
<text class="small" x="20" y="50">Each group has its own scale. Beside a bar: operations a second · p99 latency.</text>
<text class="work" x="20" y="80">check (64 × 1)</text>
<text x="20" y="100">Limina</text>
<rect class="limina" x="190" y="90" width="19" height="12" rx="2"/>
<text x="217" y="100">50,000 · 2.50 ms</text>
<text x="20" y="120">Limina in process</text>
<rect class="bound" x="190" y="110" width="370" height="12" rx="2"/>
<text x="568" y="120">1,000,000 · 0.09 ms</text>
<text x="20" y="140">echo</text>
<rect class="bound" x="190" y="130" width="30" height="12" rx="2"/>
<text x="228" y="140">80,000 · 1.00 ms</text>
<text x="20" y="160">Redis</text>
<rect class="rival" x="190" y="150" width="15" height="12" rx="2"/>
<text x="213" y="160">40,000 · 3.00 ms</text>
<text x="20" y="180">P&amp;G</text>
<rect class="rival" x="190" y="170" width="1" height="12" rx="2"/>
<text x="199" y="180">100</text>
<text class="work" x="20" y="210">check, called directly (1 core)</text>
<text x="20" y="230">Limina's engine</text>
<rect class="limina" x="190" y="220" width="370" height="12" rx="2"/>
<text x="568" y="230">999</text>
</svg>
"#;
    assert_eq!(bars, expect);
}

/// Figures must not be edited by hand: text and charts must be those of the stored figures, which are from one run of
/// all families. If only their form has changed, `UPDATE_SUMMARY=1` writes them again.
#[test]
fn the_documentation_shows_one_run_of_all_families() {
    let docs = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"));
    let read = |path: PathBuf| {
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let summary: Summary = serde_json::from_str(&read(docs.join("benchmarks/figures.json"))).unwrap();
    if std::env::var_os("UPDATE_SUMMARY").is_some() {
        summary.write(&docs).unwrap();
    }
    assert!(read(docs.join(PAGE)) == read_page(&docs).unwrap().with(&summary), "the text is not of this run");
    let names: Vec<&str> = summary.families.iter().map(|family| family.name.as_str()).collect();
    assert_eq!(names, crate::all::FAMILIES.map(|(name, _)| name));
    for family in &summary.families {
        let chart = read(docs.join("benchmarks").join(chart::file(family)));
        assert!(
            chart == chart::draw(&summary, family).unwrap(),
            "the chart of {} is not of this run",
            family.name
        );
    }
}

#[test]
fn numbers_are_grouped_by_three_digits() {
    assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
}
