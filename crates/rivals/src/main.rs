//! Rate limiters that are crates, doing the work of `limina-bench limiter`, which starts this program: one rule, a limit
//! for each client that is never reached, and checks for clients chosen at random, on one thread.
//!
//! `limina-rivals NAME CLIENTS SECONDS` prints how many checks were made, how many nanoseconds of processor time they
//! took, and how many bytes the process has. As with Limina's engine, what is asked is made beforehand and not counted.

use governor::{DefaultKeyedRateLimiter, Quota};
use limitador::{
    RateLimiter,
    limit::{Context, Limit, Namespace},
};
use rustix::time::{ClockId, clock_gettime};
use std::{collections::HashMap, num::NonZeroU32, process::ExitCode, time::Duration};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// So many checks are made ready at a time.
const BATCH: usize = 4096;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers = |clients: &str, seconds: &str| Some((clients.parse().ok()?, seconds.parse().ok()?));
    let [name, clients, seconds] = args.as_slice() else { return usage() };
    let Some((clients, seconds)) = numbers(clients, seconds) else { return usage() };
    let time = Duration::from_secs_f64(seconds);
    let figures = match name.as_str() {
        "governor" => governor(clients, time),
        "limitador" => limitador(clients, time),
        _ => return usage(),
    };
    println!("{} {} {}", figures.checks, figures.took.as_nanos(), figures.resident_bytes);
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: limina-rivals governor|limitador CLIENTS SECONDS");
    ExitCode::FAILURE
}

struct Figures {
    checks: u64,
    took: Duration,
    resident_bytes: u64,
}

/// A bucket for each client (GCRA).
fn governor(clients: usize, time: Duration) -> Figures {
    // A token each microsecond: more a second would be less than the nanoseconds in which it counts.
    let quota = Quota::per_second(NonZeroU32::new(1_000_000).expect("not zero"));
    let limiter: DefaultKeyedRateLimiter<String> =
        DefaultKeyedRateLimiter::keyed(quota.allow_burst(NonZeroU32::MAX));
    measure(clients, time, client_name, |client| limiter.check_key(client).is_ok())
}

/// A fixed window of a day for each client.
fn limitador(clients: usize, time: Duration) -> Figures {
    // All clients fit: what does not is forgotten.
    let limiter = RateLimiter::new(2 * clients as u64);
    let namespace = Namespace::from("default");
    let client = "client".try_into().expect("an expression");
    limiter.add_limit(Limit::new("default", 1_000_000_000_000, 86_400, vec![], vec![client]));
    let context = |number| Context::from(HashMap::from([("client".to_owned(), client_name(number))]));
    measure(clients, time, context, |context| {
        let result = limiter.check_rate_limited_and_update(&namespace, context, 1);
        result.is_ok_and(|result| !result.limited)
    })
}

/// Every client is known before anything is counted.
fn measure<T>(
    clients: usize,
    time: Duration,
    make: impl Fn(usize) -> T,
    check: impl Fn(&T) -> bool,
) -> Figures {
    for client in 0..clients {
        assert!(check(&make(client)), "a check was refused");
    }
    let mut random = Random(clients as u64);
    repeat(clients, time / 5, &mut random, &make, &check);
    let (checks, took) = repeat(clients, time, &mut random, &make, &check);
    // Now, while what was checked is still there.
    Figures { checks, took, resident_bytes: resident_bytes().unwrap_or(0) }
}

fn repeat<T>(
    clients: usize,
    time: Duration,
    random: &mut Random,
    make: impl Fn(usize) -> T,
    check: impl Fn(&T) -> bool,
) -> (u64, Duration) {
    let (mut checks, mut took) = (0, Duration::ZERO);
    while took < time {
        let asked: Vec<T> = (0..BATCH).map(|_| make(random.below(clients))).collect();
        let begin = thread_cpu_time();
        let passed = asked.iter().filter(|asked| check(asked)).count();
        took += thread_cpu_time() - begin;
        assert_eq!(passed, BATCH, "a check was refused");
        checks += BATCH as u64;
    }
    (checks, took)
}

fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn client_name(number: usize) -> String {
    format!("client-{number}")
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}
