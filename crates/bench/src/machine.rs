//! Figures of the machine and its processes, from `/proc`. On systems without it the figures are missing.

use crate::measure::Measured;
use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::Path,
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

/// Processor time of all programs except this one and its children that have ended.
pub(crate) fn others_cpu_time() -> Option<Duration> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let numbers = text.lines().next()?.split_whitespace().skip(1).map(str::parse::<u64>);
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
    // Without idle time, waiting for disks, and the time of other virtual machines.
    let busy: u64 = [0, 1, 2, 5, 6].into_iter().filter_map(|index| numbers.get(index)).sum();
    let own = stat(std::process::id())?;
    Some(duration(busy.saturating_sub(own.ticks + own.ended_children_ticks)))
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

/// The time to overwrite 4 KiB and sync them, for which every durable answer has to wait.
pub(crate) fn sync_time(directory: &Path) -> io::Result<Measured> {
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
