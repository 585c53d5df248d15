//! The queue under a clock that the tests set, in front of a shard that needs a fixed time for each unit of weight.

use super::*;
use std::collections::BTreeMap;

const MAX_WAIT: Duration = Duration::from_millis(250);
const STANDING: Duration = Duration::from_micros(2_500);
const ROUND: Cost = Cost { weight: 500, bytes: 1 << 20 };
const TICK: Duration = Duration::from_micros(100);
const SECOND: Duration = Duration::from_secs(1);

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    namespace: &'static str,
    number: u64,
    at: Instant,
    is_gone: bool,
}

/// A shard, its queue, and clients that send requests of weight 1 at fixed rates.
struct World {
    queue: Queue<Sent>,
    now: Instant,
    /// The shard's time for each unit of weight.
    work: Duration,
    busy_until: Instant,
    sent: u64,
    seen: Seen,
}

/// What happened in some time.
#[derive(Default)]
struct Seen {
    waits: BTreeMap<&'static str, Vec<Duration>>,
    refused: BTreeMap<&'static str, usize>,
    late: usize,
}

impl Seen {
    fn begun(&self, namespace: &str) -> usize {
        self.waits.get(namespace).map_or(0, Vec::len)
    }

    fn refused(&self, namespace: &str) -> usize {
        self.refused.get(namespace).copied().unwrap_or(0)
    }

    fn longest_wait(&self, namespace: &str) -> Duration {
        self.waits.get(namespace).and_then(|waits| waits.iter().max().copied()).unwrap_or_default()
    }
}

impl World {
    fn new(work: Duration) -> World {
        let options = QueueOptions { max_wait: MAX_WAIT, max_bytes: 1 << 30 };
        let start = Instant::now();
        World {
            queue: Queue::new(options),
            now: start,
            work,
            busy_until: start,
            sent: 0,
            seen: Seen::default(),
        }
    }

    fn send(&mut self, namespace: &'static str) -> Result<(), Overloaded> {
        self.sent += 1;
        let sent = Sent { namespace, number: self.sent, at: self.now, is_gone: false };
        let cost = Cost { weight: 1, bytes: 100 };
        let pushed = self.queue.push(self.now, &name(namespace), sent, cost, false);
        pushed.map(drop).map_err(|(sent, overloaded)| {
            *self.seen.refused.entry(sent.namespace).or_default() += 1;
            overloaded
        })
    }

    /// Lets time pass while clients send to namespaces, so many requests a second each. Returns what happened meanwhile.
    fn run(&mut self, time: Duration, rates: &[(&'static str, u64)]) -> Seen {
        let begin = self.now;
        let mut sent = vec![0; rates.len()];
        while self.now < begin + time {
            self.now += TICK;
            for (sent, (namespace, rate)) in sent.iter_mut().zip(rates) {
                while *sent < (self.now - begin).as_micros() as u64 * rate / 1_000_000 {
                    *sent += 1;
                    let _counted = self.send(namespace);
                }
            }
            self.work();
        }
        std::mem::take(&mut self.seen)
    }

    /// The shard begins its next round, if it is not busy.
    fn work(&mut self) {
        if self.now >= self.busy_until {
            self.queue.handle_ready(self.now, &HashSet::new());
        }
        while self.now >= self.busy_until && !self.queue.is_empty() {
            let taken = self.queue.take(self.now, ROUND, &HashSet::new(), |sent| sent.is_gone);
            self.busy_until = self.now + self.work * taken.begin.len() as u32;
            for sent in taken.begin {
                self.seen.waits.entry(sent.namespace).or_default().push(self.now - sent.at);
            }
            self.seen.late += taken.late.len();
        }
    }
}

/// The shard can do 100,000 a second.
fn fast() -> World {
    World::new(Duration::from_micros(10))
}

#[test]
fn below_its_capacity_nothing_is_refused() {
    let mut world = fast();
    for rate in [100, 10_000, 90_000] {
        let seen = world.run(SECOND, &[("a", rate)]);
        assert_eq!(seen.refused("a"), 0, "{rate} a second");
        assert!(seen.longest_wait("a") <= Duration::from_millis(10), "{:?}", seen.longest_wait("a"));
    }
}

#[test]
fn under_overload_waits_stay_short_and_the_shard_stays_busy() {
    let mut world = fast();
    let at_first = world.run(SECOND / 2, &[("a", 500_000)]);
    assert!(at_first.longest_wait("a") <= MAX_WAIT + 2 * ROUND.weight as u32 * world.work);
    for _ in 0..2 {
        let seen = world.run(SECOND / 5, &[("a", 500_000)]);
        assert!(seen.longest_wait("a") <= 3 * STANDING, "{:?}", seen.longest_wait("a"));
        assert_eq!(seen.late, 0);
        let (begun, refused) = (seen.begun("a"), seen.refused("a"));
        assert!(begun > 19_000, "only {begun} were begun");
        assert!((78_000..82_000).contains(&refused), "{refused} were refused");
    }
    // The load ends, and the next requests are accepted and do not wait.
    world.run(Duration::from_millis(20), &[]);
    let seen = world.run(SECOND, &[("a", 1000)]);
    assert_eq!(seen.refused("a"), 0);
    assert!(seen.longest_wait("a") <= Duration::from_millis(1), "{:?}", seen.longest_wait("a"));
}

/// After a while without refusals, a burst may fill the queue again with work for [`MAX_WAIT`].
#[test]
fn a_burst_may_wait_but_not_longer_than_the_bound() {
    let mut world = fast();
    // The shard's speed is learned.
    world.run(SECOND / 2, &[("a", 200_000)]);
    world.run(SECOND / 2, &[("a", 1000)]);
    let accepted = (0..50_000).filter(|_| world.send("a").is_ok()).count();
    let bound = MAX_WAIT.as_micros() as usize / 10;
    assert!((bound / 2..=bound * 2).contains(&accepted), "{accepted} of a burst were accepted");
    let seen = world.run(SECOND, &[]);
    assert!(
        seen.longest_wait("a") <= MAX_WAIT + 2 * ROUND.weight as u32 * world.work,
        "{:?}",
        seen.longest_wait("a")
    );
    assert_eq!(seen.begun("a") + seen.late, accepted);
}

#[test]
fn a_namespace_that_floods_the_queue_does_not_make_others_wait() {
    let mut world = fast();
    world.run(SECOND / 2, &[("flood", 500_000)]);
    let seen = world.run(SECOND / 5, &[("flood", 500_000), ("calm", 1000)]);
    assert_eq!(seen.refused("calm"), 0);
    assert!(
        seen.longest_wait("calm") <= 2 * ROUND.weight as u32 * world.work,
        "{:?}",
        seen.longest_wait("calm")
    );
    assert!(seen.begun("flood") > 18_000, "the rest is for the other one");
}

/// While others are refused, what is taken and not answered counts like what waits, but only in its own namespace.
#[test]
fn unanswered_requests_of_the_namespace_count_under_overload() {
    let mut world = fast();
    world.run(SECOND / 2, &[("a", 500_000)]);
    world.run(Duration::from_millis(20), &[]);
    let cost = Cost { weight: 1, bytes: 100 };
    let accept = |world: &mut World, namespace| {
        let sent = Sent { namespace, number: 0, at: world.now, is_gone: false };
        let accepted = world.queue.push(world.now, &name(namespace), sent, cost, false).ok();
        world.queue.take(world.now, ROUND, &HashSet::new(), |_| false);
        accepted
    };
    let unanswered: Vec<Unanswered> = std::iter::from_fn(|| accept(&mut world, "a")).take(1_000).collect();
    // 10 µs for each of them.
    assert!((200..300).contains(&unanswered.len()), "{} were accepted", unanswered.len());
    assert!(accept(&mut world, "b").is_some(), "they do not count in another namespace");
    drop(unanswered);
    assert!(accept(&mut world, "a").is_some());

    // The shard needs work while an append is under way.
    world.queue.handle_appended(Duration::from_millis(5));
    world.queue.handle_appended(Duration::from_secs(1));
    for _ in 0..100 {
        world.queue.handle_appended(Duration::from_millis(5));
    }
    let unanswered: Vec<Unanswered> = std::iter::from_fn(|| accept(&mut world, "a")).take(2_000).collect();
    assert!((400..600).contains(&unanswered.len()), "{} were accepted", unanswered.len());
}

/// Namespaces that have no requests any more are forgotten.
#[test]
fn the_queue_does_not_grow_with_the_namespaces_that_it_has_seen() {
    let (mut queue, now) = small(1 << 20);
    for number in 0..10_000 {
        let answered = queue.push(now, &name(&number.to_string()), "a", bytes(1), false);
        assert!(answered.is_ok());
        everything(&mut queue, now);
    }
    assert!(queue.lanes.len() <= MIN_KEPT_LANES, "{} are kept", queue.lanes.len());
}

/// While the disk hangs, nothing is taken. What waits is not refused for that, but what comes later is, at once.
#[test]
fn a_stall_refuses_at_once_and_is_forgotten() {
    let mut world = fast();
    world.run(SECOND, &[("a", 10_000)]);
    world.busy_until = world.now + SECOND;
    let seen = world.run(SECOND / 2, &[("a", 10_000)]);
    assert!((2000..3000).contains(&seen.refused("a")), "{} were refused", seen.refused("a"));
    let Overloaded { retry_after } = world.send("a").expect_err("it would wait");
    assert!(retry_after > SECOND / 3, "{retry_after:?} is no honest estimate");
    world.run(SECOND, &[("a", 10_000)]);
    let seen = world.run(SECOND / 4, &[("a", 90_000)]);
    assert_eq!(seen.refused("a"), 0, "the shard is fast again");
}

/// A database was away, and the shard was lost in the middle of a full round.
#[test]
fn a_shard_that_was_lost_for_long_is_not_thought_slow() {
    let mut world = fast();
    world.run(SECOND, &[("a", 10_000)]);
    while world.queue.total.weight <= ROUND.weight {
        world.send("a").expect("a short queue");
    }
    world.work();
    world.queue.handle_lost();
    world.now += 20 * SECOND;
    world.busy_until = world.now;
    world.run(SECOND / 100, &[]);
    let seen = world.run(SECOND / 4, &[("a", 90_000)]);
    assert_eq!(seen.refused("a"), 0, "the shard is as fast as before");
}

/// A few clients that send batch after batch to one namespace. The shard does each batch in slices, and takes no other meanwhile.
struct Batches {
    queue: Queue<()>,
    now: Instant,
    waiting: VecDeque<Unanswered>,
}

impl Batches {
    const COST: Cost = Cost { weight: 5_000, bytes: 1_000 };
    const TIME: Duration = Duration::from_millis(10);

    fn new(clients: usize) -> Batches {
        let (queue, now) = (Queue::new(QueueOptions::default()), Instant::now());
        let mut batches = Batches { queue, now, waiting: VecDeque::new() };
        for _ in 0..clients {
            batches.send().expect("the shard is not known to be slow");
        }
        batches
    }

    fn send(&mut self) -> Result<(), Overloaded> {
        let unanswered =
            self.queue.push(self.now, &name("a"), (), Self::COST, false).map_err(|(_, error)| error)?;
        self.waiting.push_back(unanswered);
        Ok(())
    }

    /// The shard does the next batch in this time.
    fn finish_one(&mut self, time: Duration) {
        let taken = self.queue.take(self.now, ROUND, &HashSet::new(), |_| false);
        assert_eq!(taken.begin.len(), 1);
        self.now += Duration::from_micros(15);
        self.queue.handle_ready(self.now, &HashSet::from([name("a")]));
        self.now += time;
        self.queue.handle_ready(self.now, &HashSet::new());
        self.waiting.pop_front();
    }
}

/// It is done when no namespace is held up any more. What passes until the first slice has begun says nothing.
#[test]
fn a_batch_counts_with_all_of_its_time() {
    let mut batches = Batches::new(8);
    for _ in 0..20 {
        batches.finish_one(Batches::TIME);
        batches.send().expect("80 ms of work wait");
    }
    let accepted = (0..1000).take_while(|_| batches.send().is_ok()).count();
    assert!((10..20).contains(&accepted), "{accepted} batches of 10 ms were accepted, and 8 waited");
}

#[test]
fn one_slow_batch_does_not_refuse_others() {
    let mut batches = Batches::new(8);
    for number in 0..200 {
        let is_slow = number % 50 == 49;
        batches.finish_one(if is_slow { Batches::TIME * 15 } else { Batches::TIME });
        batches.send().expect("the shard is fast again, and 80 ms of work wait");
    }
}

/// A cost like this, for tests without a shard.
fn bytes(bytes: usize) -> Cost {
    Cost { weight: 1, bytes }
}

fn small(max_bytes: usize) -> (Queue<&'static str>, Instant) {
    (Queue::new(QueueOptions { max_wait: MAX_WAIT, max_bytes }), Instant::now())
}

fn everything(queue: &mut Queue<&'static str>, now: Instant) -> Vec<&'static str> {
    queue.take(now, Cost { weight: 100, bytes: 1 << 20 }, &HashSet::new(), |_| false).begin
}

#[test]
fn bytes_are_bounded_and_what_makes_room_has_a_reserve() {
    let (mut queue, now) = small(1000);
    let mut push = |item, cost, makes_room| queue.push(now, &name("n"), item, cost, makes_room).is_ok();
    assert!(push("larger than the queue, alone", bytes(5000), false));
    assert!(!push("more", bytes(1), false));
    assert_eq!(everything(&mut queue, now).len(), 1);

    let mut push = |item, cost, makes_room| queue.push(now, &name("n"), item, cost, makes_room).is_ok();
    assert!(push("a", bytes(900), false));
    assert!(!push("b", bytes(101), false));
    assert!(push("c", bytes(100), false));
    assert!(push("a release", bytes(250), true));
    assert!(!push("another release", bytes(1), true));
    assert_eq!(everything(&mut queue, now), ["a", "c", "a release"]);
}

#[test]
fn what_makes_room_may_wait_longer() {
    let (mut queue, now) = small(1000);
    queue.push(now, &name("n"), "first", bytes(1), false).expect("the queue is empty");
    let mut check = |after: Duration, makes_room| queue.check(now + after, &name("n"), 1, makes_room).is_ok();
    assert!(check(MAX_WAIT, false));
    assert!(!check(MAX_WAIT + TICK, false));
    assert!(check(4 * MAX_WAIT, true));
    assert!(!check(4 * MAX_WAIT + TICK, true));
}

#[test]
fn abandoned_and_late_requests_are_not_begun() {
    let (mut queue, start) = small(1 << 20);
    for item in ["gone", "late", "also gone"] {
        queue.push(start, &name("n"), item, bytes(1), false).expect("there is room");
    }
    let now = start + 2 * MAX_WAIT;
    assert!(queue.push(now, &name("n"), "refused", bytes(1), false).is_err());
    queue.push(now, &name("n"), "a release", bytes(1), true).expect("it may wait longer");
    let taken = queue.take(now, ROUND, &HashSet::new(), |item| item.ends_with("gone"));
    assert_eq!(
        (taken.gone, taken.late, taken.begin),
        (vec!["gone", "also gone"], vec!["late"], vec!["a release"])
    );
    assert!(queue.is_empty());
    assert_eq!(queue.total, Cost::default());
}

#[test]
fn a_round_has_its_size_and_a_large_request_gets_its_own() {
    let (mut queue, now) = small(1 << 20);
    let n = name("n");
    for (item, weight) in [("a", 40), ("b", 70), ("large", 5000), ("c", 1)] {
        queue.push(now, &n, item, Cost { weight, bytes: 1 }, false).expect("there is room");
    }
    let rounds: Vec<_> = std::iter::from_fn(|| {
        let round = everything(&mut queue, now);
        (!round.is_empty()).then_some(round)
    })
    .collect();
    assert_eq!(rounds, [vec!["a"], vec!["b"], vec!["large"], vec!["c"]]);
}

/// Whatever happens: nothing is lost or doubled, and each namespace keeps its order.
#[test]
fn every_request_leaves_once_and_in_order() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let options = QueueOptions { max_wait: MAX_WAIT, max_bytes: 20_000 };
        let mut queue = Queue::new(options);
        let (mut now, mut number) = (Instant::now(), 0);
        let mut accepted: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        let mut left: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for _ in 0..500 {
            now += Duration::from_micros(random.below(40_000));
            for _ in 0..random.below(10) {
                number += 1;
                let namespace = ["a", "b", "c"][random.below(3) as usize];
                let is_gone = random.below(4) == 0;
                let sent = Sent { namespace, number, at: now, is_gone };
                let cost = Cost { weight: 1 + random.below(300), bytes: random.below(3000) as usize };
                if queue.push(now, &name(namespace), sent, cost, random.below(3) == 0).is_ok() {
                    accepted.entry(namespace).or_default().push(number);
                }
                assert!(queue.total.bytes <= 25_000, "seed {seed}");
            }
            let most = Cost { weight: random.below(600), bytes: random.below(5000) as usize };
            if random.below(2) == 0 {
                let taken = queue.take(now, most, &HashSet::new(), |sent: &Sent| sent.is_gone);
                assert!(taken.begin.iter().all(|sent| !sent.is_gone), "seed {seed}");
                let mut all = [taken.begin, taken.late, taken.gone].concat();
                all.sort_by_key(|sent| sent.number);
                all.into_iter().for_each(|sent| left.entry(sent.namespace).or_default().push(sent.number));
            }
        }
        let rest: Vec<Sent> = queue.drain().collect();
        rest.into_iter().for_each(|sent| left.entry(sent.namespace).or_default().push(sent.number));
        assert_eq!(left, accepted, "seed {seed}");
        assert_eq!((queue.total, queue.is_empty()), (Cost::default(), true), "seed {seed}");
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
