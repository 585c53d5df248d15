//! Whether the machine was all ours: on a virtual machine others may take its processors.

use std::{
    fs,
    time::{Duration, Instant},
};

/// Measures how much of the processors other virtual machines take. On systems without `/proc` they seem to take nothing.
pub(crate) struct StolenTime {
    begin: Instant,
    ticks: u64,
}

impl StolenTime {
    pub(crate) fn start() -> StolenTime {
        StolenTime { begin: Instant::now(), ticks: stolen_ticks().unwrap_or(0) }
    }

    /// The share of all processors that was taken since the start: 0 for nothing, 1 for everything.
    pub(crate) fn share(&self) -> f64 {
        let ticks = stolen_ticks().unwrap_or(0).saturating_sub(self.ticks);
        let stolen = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        stolen / (self.begin.elapsed().max(Duration::from_millis(1)).as_secs_f64() * processors as f64)
    }
}

fn stolen_ticks() -> Option<u64> {
    parse(&fs::read_to_string("/proc/stat").ok()?)
}

/// The eighth number of the first line, which is about all processors together.
fn parse(stat: &str) -> Option<u64> {
    stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn stolen_time_is_found() {
        assert_eq!(super::parse("cpu  10 11 12 13 14 15 16 17 18 19\ncpu0 1 2 3 4 5 6 7 8 9 0\n"), Some(17));
        assert_eq!(super::parse("cpu  10 11\n"), None);
    }
}
