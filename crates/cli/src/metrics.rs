//! Reads metrics in the text format of Prometheus, as far as this command line shows them.

/// One scrape.
pub(crate) struct Metrics {
    samples: Vec<Sample>,
}

struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Metrics {
    /// Reads all samples. A line that is no sample is passed over.
    pub(crate) fn parse(text: &str) -> Metrics {
        Metrics { samples: text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect() }
    }

    /// The sum over all samples of this name that have these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.of(name).filter(|sample| sample.has(labels)).map(|sample| sample.value).sum()
    }

    /// The sums over all samples of this name that have the labels `only`, by the values of the labels `by`.
    pub(crate) fn sums_by(&self, name: &str, only: &[(&str, &str)], by: &[&str]) -> Vec<(Vec<String>, f64)> {
        let mut sums: std::collections::BTreeMap<Vec<String>, f64> = std::collections::BTreeMap::new();
        for sample in self.of(name).filter(|sample| sample.has(only)) {
            let key = by.iter().map(|label| sample.label(label).unwrap_or_default().to_owned()).collect();
            *sums.entry(key).or_default() += sample.value;
        }
        sums.into_iter().collect()
    }

    /// The cumulated counts of a histogram, summed over its labels: upper bounds with how many are at most that.
    pub(crate) fn buckets(&self, name: &str) -> Vec<(f64, f64)> {
        let name = format!("{name}_bucket");
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for sample in self.of(&name) {
            let Some(bound) = sample.label("le").and_then(|bound| bound.parse().ok()) else { continue };
            match buckets.iter_mut().find(|(known, _)| *known == bound) {
                Some((_, count)) => *count += sample.value,
                None => buckets.push((bound, sample.value)),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| sample.name == name)
    }
}

impl Sample {
    fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels.iter().all(|(name, value)| self.label(name) == Some(value))
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// `name{label="value",…} number`, perhaps with a time or an exemplar behind it.
fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (key, value) = rest.trim_start_matches(',').split_once("=\"")?;
            let mut text = String::new();
            let mut chars = value.char_indices();
            let end = loop {
                match chars.next()? {
                    (at, '"') => break at,
                    (_, '\\') => match chars.next()?.1 {
                        'n' => text.push('\n'),
                        other => text.push(other),
                    },
                    (_, other) => text.push(other),
                }
            };
            labels.push((key.to_owned(), text));
            rest = &value[end + 1..];
        }
        rest = &rest[1..];
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// The value below which `share` of what was counted between two scrapes lies: the bound of its bucket. `None` if nothing was.
pub(crate) fn quantile(before: &[(f64, f64)], after: &[(f64, f64)], share: f64) -> Option<f64> {
    let counts: Vec<(f64, f64)> = after
        .iter()
        .map(|(bound, count)| {
            let earlier = before.iter().find(|(known, _)| known == bound).map_or(0.0, |(_, count)| *count);
            (*bound, count - earlier)
        })
        .collect();
    let (_, total) = *counts.last()?;
    if total <= 0.0 {
        return None;
    }
    counts.iter().find(|(_, count)| *count >= share * total).map(|(bound, _)| *bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP x Some.\n\
        x_total{rule=\"a\\\"b\",result=\"refused\"} 3\n\
        x_total{rule=\"c}\",result=\"refused\"} 4 # {trace=\"1\"} 1\n\
        x_total{rule=\"c}\",result=\"allowed\"} 50\n\
        up 1\n\
        d_bucket{le=\"0.1\"} 90\nd_bucket{le=\"0.5\"} 99\nd_bucket{le=\"+Inf\"} 100\n\
        # EOF\nnonsense\n";

    #[test]
    fn samples() {
        let metrics = Metrics::parse(TEXT);
        assert_eq!(metrics.sum("up", &[]), 1.0);
        assert_eq!(metrics.sum("x_total", &[("result", "refused")]), 7.0);
        let refused = metrics.sums_by("x_total", &[("result", "refused")], &["rule"]);
        assert_eq!(refused, [(vec!["a\"b".to_owned()], 3.0), (vec!["c}".to_owned()], 4.0)]);
    }

    #[test]
    fn quantiles() {
        let buckets = Metrics::parse(TEXT).buckets("d");
        assert_eq!(quantile(&[], &buckets, 0.5), Some(0.1));
        assert_eq!(quantile(&[], &buckets, 0.99), Some(0.5));
        assert_eq!(quantile(&[], &buckets, 0.999), Some(f64::INFINITY));
        assert_eq!(quantile(&buckets, &buckets, 0.99), None);
    }
}
