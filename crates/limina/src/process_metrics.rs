//! Metrics of the process and of its disk, which are read when they are asked for. Those of the process have the names that they
//! have in all programs that Prometheus watches. A metric that this system cannot tell is absent.

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge, info::Info},
    registry::{Registry, Unit},
};
use rustix::{
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};
use std::{
    fmt, fs,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

/// Adds the metrics. `data` is the directory whose disk is watched; `None` with a shared store.
pub(crate) fn register(registry: &mut Registry, data: Option<PathBuf>) {
    let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("limina_build", "The version of the server", build);
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    registry.register_collector(Box::new(Process { started, data }));
}

#[derive(Debug)]
struct Process {
    /// Seconds since the epoch. The metrics are registered right after the start.
    started: f64,
    data: Option<PathBuf>,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = ConstCounter::new(cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9);
        let help = "Processor time that the process has taken, of user and system";
        write(&mut encoder, "process_cpu", help, Some(Unit::Seconds), &cpu)?;
        let mut gauge = |name, help, unit, value| match value {
            Some(value) => write(&mut encoder, name, help, unit, &ConstGauge::<f64>::new(value)),
            None => Ok(()),
        };
        let (seconds, bytes) = (|| Some(Unit::Seconds), || Some(Unit::Bytes));
        gauge(
            "process_start_time",
            "When the process started, since the epoch",
            seconds(),
            Some(self.started),
        )?;
        gauge("process_resident_memory", "Memory that the process takes", bytes(), resident_bytes())?;
        gauge("process_open_fds", "Open file descriptors", None, open_files())?;
        let max_fds = getrlimit(Resource::Nofile).current.map(|max| max as f64);
        gauge("process_max_fds", "The most file descriptors that the process may open", None, max_fds)?;
        let disk = self.data.as_ref().and_then(|data| rustix::fs::statvfs(data).ok());
        let free = disk.as_ref().map(|disk| disk.f_bavail as f64 * disk.f_frsize as f64);
        gauge("limina_disk_free", "Free space on the disk of the data", bytes(), free)?;
        let size = disk.as_ref().map(|disk| disk.f_blocks as f64 * disk.f_frsize as f64);
        gauge("limina_disk_size", "Size of the disk of the data", bytes(), size)
    }
}

fn write(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<Unit>,
    metric: &dyn EncodeMetric,
) -> fmt::Result {
    let encoder = encoder.encode_descriptor(name, help, unit.as_ref(), metric.metric_type())?;
    metric.encode(encoder)
}

fn resident_bytes() -> Option<f64> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = pages.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as f64)
}

fn open_files() -> Option<f64> {
    const DIRECTORY: &str = "/proc/self/fd";
    // Linux before 6.2 does not say how many there are: there the size is 0, and the entries are counted.
    match fs::metadata(DIRECTORY).ok()?.len() {
        0 => Some(fs::read_dir(DIRECTORY).ok()?.count() as f64),
        open => Some(open as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    #[test]
    fn metrics_have_their_usual_names_and_plausible_values() {
        let mut registry = Registry::default();
        register(&mut registry, Some(".".into()));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(text.contains(concat!(
            r#"limina_build_info{version=""#,
            env!("CARGO_PKG_VERSION"),
            r#""} 1"#
        )));
        for name in [
            "process_cpu_seconds_total",
            "process_start_time_seconds",
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_max_fds",
            "limina_disk_free_bytes",
            "limina_disk_size_bytes",
        ] {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let value: f64 = value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap();
            assert!(value > 0.0, "{name}: {value}");
        }
    }
}
