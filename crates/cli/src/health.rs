//! What is wrong with a node, from its metrics: for `status` and `top`.

use crate::{
    metrics::{self, Metrics},
    words,
};

/// An append that takes longer than this is slow on every disk.
const SLOW_APPEND: f64 = 0.1;

/// The figures of one moment that tell whether a node lacks something.
pub(crate) struct Health {
    is_full: bool,
    pub(crate) memory: f64,
    pub(crate) memory_limit: f64,
    /// Requests, bodies, answers and followers that were refused for lack of memory.
    memory_refusals: f64,
    connection_refusals: f64,
    /// Requests that were not decided, by code.
    undecided: Vec<(String, f64)>,
    /// Requests that shards have accepted and not answered yet.
    pub(crate) queue_depth: f64,
    append: Vec<(f64, f64)>,
}

impl Health {
    pub(crate) fn of(metrics: &Metrics) -> Health {
        let undecided = metrics.sums_by("limina_unavailable_total", &[], &["code"]);
        Health {
            is_full: metrics.sum("limina_storage_full", &[]) > 0.0,
            memory: metrics.sum("limina_memory_bytes", &[]),
            memory_limit: metrics.sum("limina_memory_limit_bytes", &[]),
            memory_refusals: metrics.sum("limina_memory_refusals_total", &[]),
            connection_refusals: metrics.sum("limina_http_connections_refused_total", &[]),
            undecided: undecided.into_iter().map(|(codes, count)| (codes.concat(), count)).collect(),
            queue_depth: metrics.sum("limina_queue_depth", &[]),
            append: metrics.buckets("limina_append_duration_seconds"),
        }
    }

    /// Requests that were not decided.
    pub(crate) fn all_undecided(&self) -> f64 {
        self.undecided.iter().map(|(_, count)| count).sum()
    }

    /// How long 99 of 100 appends take that ended after `before`, at most. `None`: there were none.
    pub(crate) fn append_p99(&self, before: Option<&Health>) -> Option<f64> {
        metrics::quantile(before.map_or(&[], |before| &before.append), &self.append, 0.99)
    }

    /// What a person should look at now, each in a few words.
    pub(crate) fn troubles(&self, before: &Health) -> Vec<String> {
        let mut troubles = Vec::new();
        if self.is_full {
            troubles.push("storage is full: writes are refused".to_owned());
        }
        match self.append_p99(Some(before)) {
            Some(p99) if p99 > SLOW_APPEND => {
                troubles.push(format!("the disk is slow: appends take {}", at_most(p99)));
            }
            None if before.queue_depth >= 1.0 && self.queue_depth >= 1.0 => {
                let waiting = words::counted(self.queue_depth as i128, "request");
                troubles.push(format!("the disk may hang: no append has ended, and shards have {waiting}"));
            }
            _ => {}
        }
        // From these parts of the budget on, a server refuses more and more.
        let share = if self.memory_limit > 0.0 { self.memory / self.memory_limit } else { 0.0 };
        if share >= 1.0 {
            troubles.push("memory is full: requests are refused".to_owned());
        } else if share > 7.0 / 8.0 {
            troubles.push("memory is short: writes that may add state are refused".to_owned());
        } else if share > 3.0 / 4.0 {
            troubles.push("memory is getting short: slow clients are disconnected".to_owned());
        }
        troubles
    }

    /// What was refused after `before` because the node lacked something: `3 for lack of memory`, `2 StorageFull`.
    pub(crate) fn refused(&self, before: Option<&Health>) -> Vec<String> {
        let since = |now: f64, earlier: Option<f64>| (now - earlier.unwrap_or(0.0)).max(0.0) as i128;
        let memory = since(self.memory_refusals, before.map(|before| before.memory_refusals));
        let connections = since(self.connection_refusals, before.map(|before| before.connection_refusals));
        let mut refused = Vec::new();
        if memory > 0 {
            refused.push(format!("{} for lack of memory", words::number(memory)));
        }
        if connections > 0 {
            let counted = words::counted(connections, "connection");
            refused.push(format!("{counted} for lack of open files"));
        }
        for (code, count) in &self.undecided {
            let earlier = |before: &Health| {
                before.undecided.iter().find(|(known, _)| known == code).map_or(0.0, |(_, count)| *count)
            };
            let count = since(*count, before.map(earlier));
            if count > 0 {
                refused.push(format!("{} {}", words::number(count), words::printable(code)));
            }
        }
        refused
    }
}

/// A bound of a histogram.
pub(crate) fn at_most(seconds: f64) -> String {
    if seconds.is_finite() {
        format!("≤ {}", words::latency(seconds))
    } else {
        "longer than the largest bucket".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(lines: &str) -> Health {
        Health::of(&Metrics::parse(lines))
    }

    const WELL: &str = "limina_memory_bytes{kind=\"state\"} 10\nlimina_memory_limit_bytes 100\nlimina_storage_full 0\n\
        limina_append_duration_seconds_bucket{le=\"0.001\"} 90\n\
        limina_append_duration_seconds_bucket{le=\"+Inf\"} 90\n";

    #[test]
    fn troubles() {
        #[track_caller]
        fn check(before: &str, now: &str, expect: &[&str]) {
            let troubles = health(now).troubles(&health(before));
            assert_eq!(troubles.len(), expect.len(), "{troubles:?}");
            for (found, expect) in troubles.iter().zip(expect) {
                assert!(found.contains(expect), "{troubles:?}");
            }
        }
        let slow = "limina_append_duration_seconds_bucket{le=\"0.001\"} 90\n\
            limina_append_duration_seconds_bucket{le=\"0.4\"} 95\n\
            limina_append_duration_seconds_bucket{le=\"+Inf\"} 95\n";
        check(WELL, WELL, &[]);
        check(WELL, "limina_storage_full 1", &["storage is full"]);
        check(WELL, slow, &["the disk is slow: appends take ≤ 400.0 ms"]);
        check("limina_queue_depth 2", "limina_queue_depth 1", &["the disk may hang"]);
        check("limina_queue_depth 2", "limina_queue_depth 0", &[]);
        let memory = |used: u32| format!("limina_memory_limit_bytes 100\nlimina_memory_bytes {used}");
        check(WELL, &memory(80), &["getting short"]);
        check(WELL, &memory(90), &["writes that may add state"]);
        check(WELL, &memory(100), &["memory is full"]);
    }

    #[test]
    fn what_was_refused_for_lack_of_something() {
        let before = "limina_unavailable_total{code=\"StorageFull\"} 3\nlimina_memory_refusals_total 1";
        let now = "limina_unavailable_total{code=\"StorageFull\"} 5\nlimina_memory_refusals_total 1\n\
            limina_http_connections_refused_total 1";
        let refused = |before: Option<&Health>| health(now).refused(before).join(", ");
        assert_eq!(refused(None), "1 for lack of memory, 1 connection for lack of open files, 5 StorageFull");
        assert_eq!(refused(Some(&health(before))), "1 connection for lack of open files, 2 StorageFull");
        assert_eq!(refused(Some(&health(now))), "");
    }
}
