//! Figures of the machine and its processes, from `/proc`. On systems without it the figures are missing.

use crate::measure::Measured;
use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Resident memory of a process.
pub(crate) fn resident_bytes(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// Processor time of a process.
pub(crate) fn cpu_time(process: u32) -> Duration {
    duration(stat(process).map_or(0, |stat| stat.ticks))
}

/// Processor time of the calling thread.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Processor time of a server: its process, and its children, including those that have ended.
pub(crate) fn family_cpu_time(process: u32) -> Duration {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(stat);
    let ticks = all.map(|stat| match (stat.process == process, stat.parent == process) {
        (true, _) => stat.ticks + stat.ended_children_ticks,
        (false, true) => stat.ticks,
        (false, false) => 0,
    });
    duration(ticks.sum())
}

/// Waits until the background work of a process (checkpoints, compactions) has ended, but at most for a minute.
pub(crate) async fn settle(process: u32) {
    const LOOK_EVERY: Duration = Duration::from_millis(500);
    let begin = Instant::now();
    let (mut before, mut quiet) = (cpu_time(process), 0);
    while quiet < 4 && begin.elapsed() < Duration::from_secs(60) {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = cpu_time(process);
        quiet = if now.saturating_sub(before) < LOOK_EVERY / 10 { quiet + 1 } else { 0 };
        before = now;
    }
}

/// Processor time of servers that have ended and were not children of this process, in milliseconds.
static ENDED: AtomicU64 = AtomicU64::new(0);

/// Counts a server as one of this program, though it is not its child. Call this before the server ends.
pub(crate) fn note_end(process: u32) {
    ENDED.fetch_add(family_cpu_time(process).as_millis() as u64, Ordering::Relaxed);
}

/// Processor time of all programs except this one, its children that have ended, and servers of [`note_end`]; and the time that
/// other virtual machines took while this one had something to do.
pub(crate) fn others_cpu_time() -> Option<Duration> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let numbers = text.lines().next()?.split_whitespace().skip(1).map(str::parse::<u64>);
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
    // Without idle time and waiting for disks.
    let busy: u64 = [0, 1, 2, 5, 6, 7].into_iter().filter_map(|index| numbers.get(index)).sum();
    let own = stat(std::process::id())?;
    let ended = Duration::from_millis(ENDED.load(Ordering::Relaxed));
    Some(duration(busy.saturating_sub(own.ticks + own.ended_children_ticks)).saturating_sub(ended))
}

fn duration(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

struct Stat {
    process: u32,
    parent: u32,
    ticks: u64,
    ended_children_ticks: u64,
}

fn stat(process: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, in parentheses, may contain any character.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        process,
        parent: u32::try_from(number(1)?).ok()?,
        ticks: number(11)? + number(12)?,
        ended_children_ticks: number(13)? + number(14)?,
    })
}

/// The load averages of the last 1, 5 and 15 minutes.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_else(|_| "unknown".into());
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, |count| count.get())
}

/// The machine, as far as figures depend on it.
pub(crate) fn description(data: &Path) -> io::Result<String> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let processor = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown processor".into());
    let memory =
        field(&read("/proc/meminfo"), "MemTotal").and_then(|text| text.strip_suffix(" kB")?.parse().ok());
    let gib = memory.map_or(0.0, |kib: f64| kib / f64::from(1 << 20));
    let kernel = read("/proc/sys/kernel/osrelease");
    let (cores, kernel, sync) = (cores(), kernel.trim(), sync_in_words(data)?);
    Ok(format!("{processor}, {cores} cores, {gib:.1} GiB, Linux {kernel}, {sync}"))
}

/// The time to overwrite 4 KiB and sync them, for which every durable answer has to wait.
pub(crate) fn sync_in_words(data: &Path) -> io::Result<String> {
    let sync = sync_time(tempfile::tempdir_in(data)?.path())?;
    let (p50, p99) = (sync.quantile_ms(0.5), sync.quantile_ms(0.99));
    Ok(format!("4 KiB written and synced in p50 {p50:.2} ms, p99 {p99:.2} ms"))
}

fn sync_time(directory: &Path) -> io::Result<Measured> {
    const BLOCK: [u8; 4096] = [7; 4096];
    let file = File::create(directory.join("sync"))?;
    file.write_all_at(&vec![0; 1 << 20], 0)?;
    file.sync_all()?;
    let mut measured = Measured::new();
    let begin = Instant::now();
    for block in 0..256 {
        let write = Instant::now();
        file.write_all_at(&BLOCK, block * 4096)?;
        file.sync_data()?;
        measured.note(1, 0, write.elapsed());
        if begin.elapsed() > Duration::from_secs(1) {
            break;
        }
    }
    measured.elapsed = begin.elapsed();
    Ok(measured)
}
