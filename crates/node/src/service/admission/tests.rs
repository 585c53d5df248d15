//! Admission to a queue under a clock that the tests set, in front of a shard that needs a fixed time for each unit of weight.

use super::*;
use limina_shard::fair_queue::{RoundSize, Verdict};
use std::collections::{BTreeMap, VecDeque};

const MAX_WAIT: Duration = Duration::from_millis(250);
const STANDING: Duration = Duration::from_micros(2_500);
const ROUND: RoundSize = RoundSize { requests: usize::MAX, work: 500 };
const TICK: Duration = Duration::from_micros(100);
const SECOND: Duration = Duration::from_secs(1);

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

/// The queue and the admission to it. A request has a text and when it was sent.
struct Entrance {
    queue: FairQueue<(&'static str, Admitted)>,
    admission: Admission,
}

/// The requests of one round, and those that were late.
#[derive(Default)]
struct TakenRound {
    begun: Vec<(&'static str, Admitted)>,
    late: Vec<&'static str>,
}

impl Entrance {
    fn new(max_bytes: usize) -> Entrance {
        let admission = Admission::new(QueueOptions { max_wait: MAX_WAIT, max_bytes });
        Entrance { queue: FairQueue::default(), admission }
    }

    fn push(
        &mut self,
        now: Instant,
        namespace: &str,
        text: &'static str,
        (weight, bytes): (usize, usize),
        makes_room: bool,
    ) -> Result<Unanswered, Overloaded> {
        let namespace = name(namespace);
        let admitted = self.admission.admit(&self.queue, now, &namespace, weight, bytes, makes_room);
        let (unanswered, admitted) = admitted?;
        self.queue.push(&namespace, weight, (text, admitted));
        Ok(unanswered)
    }

    fn take(&mut self, now: Instant) -> TakenRound {
        let mut late = Vec::new();
        let taken = self.queue.take(ROUND, |(text, admitted)| {
            self.admission.handle_left(admitted);
            if !self.admission.is_late(admitted, now) {
                return Verdict::Begin;
            }
            late.push(*text);
            Verdict::Drop
        });
        self.admission.handle_taken(&self.queue, now);
        TakenRound { begun: taken.begin, late }
    }

    /// The shard takes everything.
    fn take_texts(&mut self, now: Instant) -> Vec<&'static str> {
        let mut texts = Vec::new();
        while !self.queue.is_empty() {
            texts.extend(self.take(now).begun.iter().map(|(text, _)| *text));
        }
        texts
    }

    fn handle_ready(&mut self, now: Instant) {
        self.admission.handle_ready(&mut self.queue, now);
    }
}

/// A shard, its queue, and clients that send requests of weight 1 at fixed rates.
struct World {
    entrance: Entrance,
    now: Instant,
    /// The shard's time for each unit of weight.
    work: Duration,
    busy_until: Instant,
    seen: Report,
}

/// What happened in some time.
#[derive(Default)]
struct Report {
    waits: BTreeMap<&'static str, Vec<Duration>>,
    refused: BTreeMap<&'static str, usize>,
    late: usize,
}

impl Report {
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
        let start = Instant::now();
        World {
            entrance: Entrance::new(1 << 30),
            now: start,
            work,
            busy_until: start,
            seen: Report::default(),
        }
    }

    fn send(&mut self, namespace: &'static str) -> Result<Unanswered, Overloaded> {
        let pushed = self.entrance.push(self.now, namespace, namespace, (1, 100), false);
        if pushed.is_err() {
            *self.seen.refused.entry(namespace).or_default() += 1;
        }
        pushed
    }

    /// Lets time pass while clients send to namespaces, so many requests a second each. Returns what happened meanwhile.
    fn run(&mut self, time: Duration, rates: &[(&'static str, u64)]) -> Report {
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
            self.entrance.handle_ready(self.now);
        }
        while self.now >= self.busy_until && !self.entrance.queue.is_empty() {
            let taken = self.entrance.take(self.now);
            self.busy_until = self.now + self.work * taken.begun.len() as u32;
            for (namespace, admitted) in taken.begun {
                let waited = admitted.waited(self.now);
                self.seen.waits.entry(namespace).or_default().push(waited);
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
    assert!(at_first.longest_wait("a") <= MAX_WAIT + 2 * ROUND.work as u32 * world.work);
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
        seen.longest_wait("a") <= MAX_WAIT + 2 * ROUND.work as u32 * world.work,
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
        seen.longest_wait("calm") <= 2 * ROUND.work as u32 * world.work,
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
    let accept = |world: &mut World, namespace| {
        let accepted = world.send(namespace).ok();
        world.entrance.take(world.now);
        accepted
    };
    let unanswered: Vec<Unanswered> = std::iter::from_fn(|| accept(&mut world, "a")).take(1_000).collect();
    // 10 µs for each of them.
    assert!((200..300).contains(&unanswered.len()), "{} were accepted", unanswered.len());
    assert!(accept(&mut world, "b").is_some(), "they do not count in another namespace");
    drop(unanswered);
    assert!(accept(&mut world, "a").is_some());

    // The shard needs work while an append is under way.
    world.entrance.admission.handle_appended(Duration::from_millis(5));
    world.entrance.admission.handle_appended(Duration::from_secs(1));
    for _ in 0..100 {
        world.entrance.admission.handle_appended(Duration::from_millis(5));
    }
    let unanswered: Vec<Unanswered> = std::iter::from_fn(|| accept(&mut world, "a")).take(2_000).collect();
    assert!((400..600).contains(&unanswered.len()), "{} were accepted", unanswered.len());
}

#[test]
fn namespaces_without_unanswered_requests_are_forgotten() {
    let (mut entrance, now) = (Entrance::new(1 << 20), Instant::now());
    for number in 0..10_000 {
        let answered = entrance.push(now, &number.to_string(), "a", (1, 1), false);
        assert!(answered.is_ok());
        entrance.take(now);
    }
    let kept = entrance.admission.unanswered.len();
    assert!(kept <= MIN_KEPT_NAMESPACES, "{kept} are kept");
}

/// While the disk hangs, nothing is taken. What waits is not refused for that, but what comes later is, at once.
#[test]
fn a_stall_refuses_at_once_and_is_forgotten() {
    let mut world = fast();
    world.run(SECOND, &[("a", 10_000)]);
    world.busy_until = world.now + SECOND;
    let seen = world.run(SECOND / 2, &[("a", 10_000)]);
    assert!((2000..3000).contains(&seen.refused("a")), "{} were refused", seen.refused("a"));
    let Err(Overloaded { retry_after }) = world.send("a") else { panic!("it would wait") };
    assert!(retry_after > SECOND / 3, "{retry_after:?} is no honest estimate");
    world.run(SECOND, &[("a", 10_000)]);
    let seen = world.run(SECOND / 4, &[("a", 90_000)]);
    assert_eq!(seen.refused("a"), 0, "the shard is fast again");
}

/// A database was away, and the shard was lost in the middle of a full round.
#[test]
fn a_long_outage_does_not_make_a_shard_seem_slow() {
    let mut world = fast();
    world.run(SECOND, &[("a", 10_000)]);
    while world.entrance.queue.weight() <= ROUND.work {
        assert!(world.send("a").is_ok(), "a short queue");
    }
    world.work();
    world.entrance.admission.handle_lost(&mut world.entrance.queue);
    world.now += 20 * SECOND;
    world.busy_until = world.now;
    world.run(SECOND / 100, &[]);
    let seen = world.run(SECOND / 4, &[("a", 90_000)]);
    assert_eq!(seen.refused("a"), 0, "the shard is as fast as before");
}

/// A few clients that send batch after batch to one namespace. The shard does each batch in slices, and takes no other meanwhile.
struct Batches {
    entrance: Entrance,
    now: Instant,
    waiting: VecDeque<Unanswered>,
}

impl Batches {
    const WEIGHT: usize = 5_000;
    /// The weight that is left after each slice. The first one only measures.
    const LEFT: [usize; 4] = [5_000, 3_000, 1_000, 0];
    const TIME: Duration = Duration::from_millis(10);

    fn new(clients: usize) -> Batches {
        let mut batches =
            Batches { entrance: Entrance::new(1 << 30), now: Instant::now(), waiting: VecDeque::new() };
        for _ in 0..clients {
            batches.send().expect("the shard is not known to be slow");
        }
        batches
    }

    fn send(&mut self) -> Result<(), Overloaded> {
        let unanswered = self.entrance.push(self.now, "a", "batch", (Self::WEIGHT, 1_000), false)?;
        self.waiting.push_back(unanswered);
        Ok(())
    }

    /// The shard does the next batch in this time.
    fn finish_one(&mut self, time: Duration) {
        for left in Self::LEFT {
            let taken = self.entrance.take(self.now);
            assert_eq!(taken.begun.len(), 1);
            self.now += time / Self::LEFT.len() as u32;
            if left > 0 {
                self.entrance.queue.put_back_unfinished(&name("a"), left, taken.begun[0]);
            }
            self.entrance.handle_ready(self.now);
        }
        self.waiting.pop_front();
    }
}

/// Also the time of slices that decide nothing.
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

#[test]
fn bytes_are_bounded_with_a_reserve_for_requests_that_make_room() {
    let (mut entrance, now) = (Entrance::new(1_000), Instant::now());
    let mut push = |text, bytes, makes_room| entrance.push(now, "n", text, (1, bytes), makes_room).is_ok();
    assert!(push("larger than the queue, alone", 5_000, false));
    assert!(!push("more", 1, false));
    assert_eq!(entrance.take_texts(now).len(), 1);

    let mut push = |text, bytes, makes_room| entrance.push(now, "n", text, (1, bytes), makes_room).is_ok();
    assert!(push("a", 900, false));
    assert!(!push("b", 101, false));
    assert!(push("c", 100, false));
    assert!(push("a release", 250, true));
    assert!(!push("another release", 1, true));
    assert_eq!(entrance.take_texts(now), ["a", "c", "a release"]);
    assert_eq!(entrance.admission.bytes, 0);
}

#[test]
fn requests_that_make_room_may_wait_longer() {
    let (mut entrance, now) = (Entrance::new(1_000), Instant::now());
    assert!(entrance.push(now, "n", "first", (1, 1), false).is_ok(), "the queue is empty");
    let mut check = |after: Duration, makes_room| {
        entrance.admission.check(&entrance.queue, now + after, &name("n"), 1, makes_room).is_ok()
    };
    assert!(check(MAX_WAIT, false));
    assert!(!check(MAX_WAIT + TICK, false));
    assert!(check(4 * MAX_WAIT, true));
    assert!(!check(4 * MAX_WAIT + TICK, true));
}

/// Unless the shard is not overloaded any more.
#[test]
fn late_requests_are_not_begun() {
    let (mut entrance, start) = (Entrance::new(1 << 20), Instant::now());
    for text in ["late", "also late"] {
        assert!(entrance.push(start, "n", text, (1, 1), false).is_ok(), "there is room");
    }
    let now = start + 2 * MAX_WAIT;
    assert!(entrance.push(now, "n", "refused", (1, 1), false).is_err());
    assert!(entrance.push(now, "n", "a release", (1, 1), true).is_ok(), "it may wait longer");
    let taken = entrance.take(now);
    let begun: Vec<_> = taken.begun.iter().map(|(text, _)| *text).collect();
    assert_eq!((begun, taken.late), (vec!["a release"], vec!["late", "also late"]));
    assert_eq!((entrance.queue.is_empty(), entrance.admission.bytes), (true, 0));

    assert!(entrance.push(now, "n", "waits for long", (1, 1), false).is_ok());
    assert_eq!(entrance.take_texts(now + 2 * MAX_WAIT), ["waits for long"]);
}

#[test]
fn requests_that_are_rejected_together_leave_nothing_behind() {
    let (mut entrance, now) = (Entrance::new(1_000), Instant::now());
    assert!(entrance.push(now, "n", "a", (1, 900), false).is_ok());
    assert_eq!(entrance.queue.drain().count(), 1);
    entrance.admission.handle_empty();
    assert!(entrance.push(now + 2 * MAX_WAIT, "n", "b", (1, 600), false).is_ok(), "nothing is stalled");
    assert!(entrance.push(now + 2 * MAX_WAIT, "n", "c", (1, 400), false).is_ok(), "there is room");
}
