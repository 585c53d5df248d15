//! The picture that `top` draws, as lines of text.

use super::{
    View,
    sample::{Lists, Sample},
};
use crate::{health::at_most, key_values, words};
use std::{collections::BTreeMap, time::Duration};

/// Rates are taken over this time, so that rare things do not flicker.
const RATE_OVER: Duration = Duration::from_secs(10);
const CHART: usize = 40;
/// The lines that are not rows of a list.
const OTHER_LINES: usize = 15;
const MIN_ROWS: usize = 3;
const MAX_ROWS: usize = 15;

/// The lines of the view, for a screen of this height.
pub(super) fn frame(view: &View, height: usize) -> Vec<String> {
    let rows = (height.saturating_sub(OTHER_LINES) / 3).clamp(MIN_ROWS, MAX_ROWS);
    let state = match (&view.trouble, view.paused) {
        (Some(trouble), _) => words::red(&words::printable(trouble)),
        (None, true) => words::bold("paused"),
        (None, false) if view.live => "q quits, space pauses".to_owned(),
        (None, false) => String::new(),
    };
    let mut lines = vec![
        format!("{}  {}  {state}", words::bold("limina top"), words::printable(&view.title)),
        String::new(),
    ];
    let Some(now) = view.samples.back() else { return lines };
    let before =
        view.samples.iter().find(|sample| now.at.duration_since(sample.at) <= RATE_OVER).unwrap_or(now);
    let rates = Rates { before, now };
    summary(view, &rates, &mut lines);
    refusals(&rates, rows, &mut lines);
    queues(&view.lists, rows, &mut lines);
    ceilings(&view.lists, rows, &mut lines);
    lines
}

struct Rates<'s> {
    before: &'s Sample,
    now: &'s Sample,
}

impl Rates<'_> {
    fn per_second(&self, before: f64, now: f64) -> f64 {
        let seconds = self.now.at.duration_since(self.before.at).as_secs_f64();
        // A restarted server counts from 0 again.
        if seconds > 0.0 { (now - before).max(0.0) / seconds } else { 0.0 }
    }

    fn of<K: Ord>(&self, counts: impl Fn(&Sample) -> &BTreeMap<K, f64>, key: &K) -> f64 {
        let of = |sample| counts(sample).get(key).copied().unwrap_or(0.0);
        self.per_second(of(self.before), of(self.now))
    }
}

fn summary(view: &View, rates: &Rates<'_>, lines: &mut Vec<String>) {
    let now = rates.now;
    let families: Vec<(String, f64)> = now
        .decided
        .keys()
        .map(|family| (family.clone(), rates.of(|sample| &sample.decided, family)))
        .collect();
    let refused: f64 = now.refused.keys().map(|key| rates.of(|sample| &sample.refused, key)).sum();
    let decided: f64 = families.iter().map(|(_, rate)| rate).sum();
    let busy: Vec<String> = families
        .iter()
        .filter(|(_, rate)| *rate > 0.0)
        .map(|(family, rate)| format!("{family} {}", rate_text(*rate)))
        .collect();
    let chart = |count: fn(&Sample) -> f64| sparkline(&steps(view, count));
    lines.push(format!(
        "decisions/s {}  {}  {}",
        words::bold(&format!("{:>10}", rate_text(decided))),
        chart(|sample| sample.decided.values().sum()),
        busy.join(" · "),
    ));
    let refused_text = format!("{:>10}", rate_text(refused));
    lines.push(format!(
        "refused/s   {}  {}",
        if refused > 0.0 { words::red(&refused_text) } else { refused_text },
        chart(|sample| sample.refused.values().sum()),
    ));
    let p99 = now.health.append_p99(Some(&rates.before.health)).map_or("-".to_owned(), at_most);
    let undecided = |sample: &Sample| sample.health.all_undecided();
    let unavailable = rates.per_second(undecided(rates.before), undecided(now));
    let unavailable_text = format!("not decided {}/s", rate_text(unavailable));
    lines.push(format!("append p99  {p99:>10}"));
    lines.push(format!(
        "now         {} in shards' queues · {} · {} · {} · {} waiting · {}",
        words::number(now.health.queue_depth as i128),
        words::counted(now.locks_held as i128, "lock"),
        words::counted(now.leases as i128, "lease"),
        words::counted(now.decisions_open as i128, "open decision"),
        words::number(now.waiting as i128),
        if unavailable > 0.0 { words::red(&unavailable_text) } else { unavailable_text },
    ));
    let health = &rates.before.health;
    let mut troubles = now.health.troubles(health);
    let refused = now.health.refused(Some(health));
    if !refused.is_empty() {
        troubles.push(format!("just refused: {}", refused.join(", ")));
    }
    if !troubles.is_empty() {
        lines.push(words::red(&format!("trouble     {}", troubles.join(" · "))));
    }
}

/// Refusals by rule, and those of the other families by code.
fn refusals(rates: &Rates<'_>, rows: usize, lines: &mut Vec<String>) {
    let now = rates.now;
    let mut all: Vec<(String, f64, f64)> = Vec::new();
    for (key @ (namespace, rule), count) in &now.refused_by_rule {
        let name = format!("rule {} in {}", words::printable(rule), words::printable(namespace));
        all.push((name, rates.of(|sample| &sample.refused_by_rule, key), *count));
    }
    for (key @ (family, code), count) in now.refused.iter().filter(|((family, _), _)| family != "limiter") {
        all.push((format!("{family}: {code}"), rates.of(|sample| &sample.refused, key), *count));
    }
    all.retain(|(_, _, count)| *count > 0.0);
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.2.total_cmp(&a.2)));
    heading("REFUSALS BY RULE", &format!("{:>12} {:>14}", "per second", "since start"), lines);
    let shown = all.iter().take(rows).map(|(name, rate, count)| {
        let line = format!("{} {:>12} {:>14}", cut(name), rate_text(*rate), words::number(*count as i128));
        if *rate > 0.0 { line } else { dim(&line) }
    });
    push_rows(shown.collect(), "nothing was refused", lines);
}

fn queues(lists: &Lists, rows: usize, lines: &mut Vec<String>) {
    heading("LONGEST QUEUES", &format!("{:>12}   {}", "waiting", "held by"), lines);
    let mut all: Vec<(usize, String)> = Vec::new();
    for lock in &lists.locks {
        let names = lock.locks.iter().map(super::super::locks::one).collect::<Vec<_>>().join("; ");
        let holder = format!(
            "{} for {}, expires in {}",
            words::or_dash(lock.owner.as_ref()),
            words::duration(lock.held_ms.0),
            words::duration(lock.expires_in_ms.0)
        );
        let line = format!(
            "{} {:>12}   {holder}",
            cut(&format!("lock {names}")),
            words::number(lock.waiting as u64)
        );
        all.push((lock.waiting, line));
    }
    for (rule, group) in &lists.slots {
        let name = format!("slots of {} {}", words::printable(rule), key_values::shown(&group.group));
        let used = format!("{} of {} used", words::number(group.used), words::limit(group.limit));
        all.push((
            group.waiting,
            format!("{} {:>12}   {used}", cut(&name), words::number(group.waiting as u64)),
        ));
    }
    all.sort_by_key(|(waiting, _)| std::cmp::Reverse(*waiting));
    let shown = all.into_iter().take(rows).map(|(_, line)| line).collect();
    push_list(shown, lists.queues_unread.as_ref(), "nobody waits", lines);
}

fn ceilings(lists: &Lists, rows: usize, lines: &mut Vec<String>) {
    heading("FULLEST CEILINGS", "", lines);
    let shown = lists.ceilings.iter().take(rows).filter_map(|limit| {
        let ceiling = limit.ceiling?;
        // The worst case decides: what is not available counts as used.
        let used = i128::from(ceiling) - i128::from(limit.available.unwrap_or(ceiling));
        let bar = words::bar(used, i128::from(ceiling));
        let full = ceiling > 0 && used * 10 >= i128::from(ceiling) * 9;
        let bar = if full { words::red(&bar) } else { bar };
        let name = cut(&words::printable(&limit.name));
        Some(format!("{name} {bar}   {} of {}", words::number(used), words::number(ceiling)))
    });
    let nothing = "no limit of the ledger has a ceiling";
    push_list(shown.collect(), lists.ceilings_unread.as_ref(), nothing, lines);
}

fn heading(title: &str, columns: &str, lines: &mut Vec<String>) {
    lines.push(String::new());
    lines.push(words::bold(&format!("{} {columns}", cut(title))));
}

/// The rows of a list of which a part, or all, may not have been read.
fn push_list(rows: Vec<String>, unread: Option<&String>, nothing: &str, lines: &mut Vec<String>) {
    match unread {
        None => push_rows(rows, nothing, lines),
        Some(why) => {
            lines.extend(rows);
            lines.push(dim(&words::printable(why)));
        }
    }
}

fn push_rows(rows: Vec<String>, nothing: &str, lines: &mut Vec<String>) {
    if rows.is_empty() {
        lines.push(dim(nothing));
    }
    lines.extend(rows);
}

/// The first column.
fn cut(text: &str) -> String {
    const WIDTH: usize = 44;
    match text.chars().count() {
        count if count <= WIDTH => format!("{text:WIDTH$}"),
        _ => text.chars().take(WIDTH - 1).chain(['…']).collect(),
    }
}

fn dim(text: &str) -> String {
    format!("\x1b[2m{text}\x1b[0m")
}

fn rate_text(rate: f64) -> String {
    if rate == 0.0 || rate >= 10.0 { words::number(rate.round() as i128) } else { format!("{rate:.1}") }
}

/// The rates between neighbouring samples, the oldest first.
fn steps(view: &View, count: fn(&Sample) -> f64) -> Vec<f64> {
    let pairs = view.samples.iter().zip(view.samples.iter().skip(1));
    let steps: Vec<f64> =
        pairs.map(|(before, now)| Rates { before, now }.per_second(count(before), count(now))).collect();
    steps[steps.len().saturating_sub(CHART)..].to_vec()
}

/// A chart of one line. Its height is relative to its largest value.
fn sparkline(values: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let largest = values.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| {
        if *value <= 0.0 {
            return '▁';
        }
        BARS[((value / largest * 7.0).round() as usize).min(7)]
    };
    let chart: String = values.iter().map(bar).collect();
    format!("{chart:>CHART$}")
}
