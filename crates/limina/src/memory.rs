//! The memory budget: what the system allows the process, and how caches are sized by it.

use crate::config::Config;
use rustix::process::{Resource, getrlimit};
use std::{
    env, fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

const MIB: u64 = 1 << 20;

/// The budget as a part of what the system allows. The rest is for what the budget does not count: the program itself, stacks,
/// buffers of the store, and what an allocator wastes.
const DEFAULT_PERCENT: u64 = 60;

/// The smallest budget. With less, too few requests fit into it.
const LEAST: u64 = 64 * MIB;

/// The table's block cache: a sixteenth of the budget, and at most this.
const MAX_CACHE: u64 = 512 * MIB;

/// The memory for which there may be one thread that waits for the disk. Each has a stack.
const PER_BLOCKING_THREAD: u64 = 16 * MIB;

/// The settings of the two allocators for a limited address space. By default, the C library reserves 64 MiB for each thread
/// that uses it, and the allocator of this program reserves 1 GiB at once.
const SMALL_ARENAS: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "1"), ("MIMALLOC_ARENA_RESERVE", "16MiB")];

/// The memory budget of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    pub(crate) bytes: u64,
}

impl MemoryLimit {
    /// The configured limit, or the default.
    pub(crate) fn of(config: &Config) -> MemoryLimit {
        let bytes = match config.memory_mib {
            Some(mib) => mib * MIB,
            None => default_limit(&System::of_this_process().allowances()),
        };
        MemoryLimit { bytes }
    }

    /// Memory for the table's block cache.
    pub(crate) fn cache_bytes(self) -> u64 {
        (self.bytes / 16).min(MAX_CACHE)
    }

    /// The most threads that wait for the disk.
    pub(crate) fn blocking_threads(self) -> usize {
        (self.bytes / PER_BLOCKING_THREAD).clamp(16, 512) as usize
    }

    /// Memory of one shard's new records that triggers a checkpoint: as configured, and at most a sixteenth of the budget.
    pub(crate) fn checkpoint_bytes(self, config: &Config) -> u64 {
        (config.checkpoint_mib * MIB).min(self.bytes / 16)
    }
}

/// If the address space is limited, replaces the process by itself with [`SMALL_ARENAS`], which can be set only in the
/// environment of a new process. Returns an error if that fails, and nothing if it is not needed.
pub(crate) fn shrink_arenas() -> io::Result<()> {
    let is_done = SMALL_ARENAS.iter().all(|(name, _)| env::var_os(name).is_some());
    if is_done || getrlimit(Resource::As).current.is_none() {
        return Ok(());
    }
    let unset = SMALL_ARENAS.into_iter().filter(|(name, _)| env::var_os(name).is_none());
    let mut arguments = env::args_os();
    let mut command = Command::new(env::current_exe()?);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    Err(command.args(arguments).envs(unset).exec())
}

/// 60 % of the least allowance. Without any, there is no limit.
fn default_limit(allowances: &[u64]) -> u64 {
    match allowances.iter().min() {
        Some(least) => (least / 100 * DEFAULT_PERCENT).max(LEAST),
        None => u64::MAX,
    }
}

/// Where the system says how much memory the process may use.
struct System {
    meminfo: PathBuf,
    /// The file that names the process's cgroups.
    own_cgroups: PathBuf,
    /// The directory at which cgroups are mounted.
    cgroups: PathBuf,
    address_space: Option<u64>,
}

impl System {
    fn of_this_process() -> System {
        System {
            meminfo: "/proc/meminfo".into(),
            own_cgroups: "/proc/self/cgroup".into(),
            cgroups: "/sys/fs/cgroup".into(),
            address_space: getrlimit(Resource::As).current,
        }
    }

    /// The bytes that the machine, the cgroups and the limit of the address space allow. What cannot be read allows anything.
    fn allowances(&self) -> Vec<u64> {
        let machine = fs::read_to_string(&self.meminfo).ok().and_then(|text| total_memory(&text));
        let own_cgroups = fs::read_to_string(&self.own_cgroups).unwrap_or_default();
        let cgroups = own_cgroups.lines().flat_map(|line| self.cgroup_limits(line));
        machine.into_iter().chain(cgroups).chain(self.address_space).collect()
    }

    /// The memory limits of one line of `/proc/self/cgroup`: `0::/path` (version 2) or `4:cpu,memory:/path` (version 1).
    fn cgroup_limits(&self, line: &str) -> Vec<u64> {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            return Vec::new();
        };
        let (root, file) = match controllers {
            "" => (self.cgroups.clone(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (self.cgroups.join("memory"), "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        // Limits of the groups above apply too. In a container, the path may be that of the host, and only the root is there.
        let path = Path::new(path.trim_start_matches('/'));
        let limits = path.ancestors().map(|group| fs::read_to_string(root.join(group).join(file)));
        // `max` means no limit, and so does a huge number in version 1.
        limits.filter_map(|text| text.ok()?.trim().parse().ok()).filter(|limit| *limit < 1 << 60).collect()
    }
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a system with these files allows.
    #[track_caller]
    fn check(files: &[(&str, &str)], address_space: Option<u64>, expect: &[u64]) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let system = System {
            meminfo: dir.path().join("meminfo"),
            own_cgroups: dir.path().join("own"),
            cgroups: dir.path().join("cgroup"),
            address_space,
        };
        assert_eq!(system.allowances(), expect, "{files:?}");
    }

    #[test]
    fn all_memory_limits_of_the_system_are_read() {
        check(&[], None, &[]);
        let machine = ("meminfo", "MemTotal:       24682496 kB\nMemFree:         7000000 kB\n");
        check(&[machine], None, &[24_682_496 << 10]);
        check(&[machine], Some(1 << 30), &[24_682_496 << 10, 1 << 30]);
        // Version 2: the group itself, and the one above.
        let own = ("own", "0::/system.slice/limina.service\n");
        let unlimited = ("cgroup/system.slice/limina.service/memory.max", "max\n");
        let slice = ("cgroup/system.slice/memory.max", "2147483648\n");
        check(&[own, unlimited, slice], None, &[2_147_483_648]);
        // In a container, the path may be unknown, and the root has the limit.
        check(&[("own", "0::/docker/abc\n"), ("cgroup/memory.max", "536870912")], None, &[536_870_912]);
        // Version 1.
        let own = ("own", "5:cpu,cpuacct:/a\n4:memory:/a\n1:name=systemd:/a\n");
        let group = ("cgroup/memory/a/memory.limit_in_bytes", "1073741824\n");
        let root = ("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        check(&[own, group, root], None, &[1 << 30]);
    }

    #[test]
    fn the_default_is_a_share_of_the_smallest_allowance() {
        let check = |allowances: &[u64], expect: u64| assert_eq!(default_limit(allowances), expect);
        check(&[1_000 * MIB, 500 * MIB, 2_000 * MIB], 300 * MIB);
        check(&[50 * MIB], LEAST);
        check(&[], u64::MAX);
    }

    #[test]
    fn caches_are_sized_by_the_budget() {
        let check = |mib: u64, expect: u64| {
            assert_eq!(MemoryLimit { bytes: mib * MIB }.cache_bytes(), expect * MIB, "{mib} MiB");
        };
        check(64, 4);
        check(512, 32);
        check(4_096, 256);
        check(16_384, 512);
    }

    #[test]
    fn threads_are_limited_by_the_budget() {
        let check = |mib: u64, expect: usize| {
            assert_eq!(MemoryLimit { bytes: mib * MIB }.blocking_threads(), expect, "{mib} MiB");
        };
        check(64, 16);
        check(640, 40);
        check(1 << 20, 512);
    }
}
