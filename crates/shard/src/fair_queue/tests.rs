//! Turns of namespaces. A request is named by its namespace and a number, like `a1`.

use super::*;
use std::collections::BTreeMap;

/// A round that takes everything.
const ALL: RoundSize = RoundSize { requests: usize::MAX, work: usize::MAX };

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

/// The namespace of a request.
fn of(item: &str) -> Name {
    name(&item[..1])
}

/// A queue with these requests, of these weights.
fn queue(requests: &[(&'static str, usize)]) -> FairQueue<&'static str> {
    let mut queue = FairQueue::default();
    for (item, weight) in requests {
        queue.push(&of(item), *weight, *item);
    }
    queue
}

fn take(queue: &mut FairQueue<&'static str>, size: RoundSize) -> Vec<&'static str> {
    queue.take(size, |_| Verdict::Begin).begin
}

/// One request after another, until none is left.
fn one_by_one(queue: &mut FairQueue<&'static str>) -> Vec<&'static str> {
    let one = RoundSize { requests: 1, work: usize::MAX };
    std::iter::from_fn(|| take(queue, one).pop()).collect()
}

/// The order in which requests are taken, whether in one round or in many.
fn check(requests: &[(&'static str, usize)], expect: &[&str]) {
    assert_eq!(take(&mut queue(requests), ALL), expect, "in one round");
    assert_eq!(one_by_one(&mut queue(requests)), expect, "in many rounds");
}

#[test]
fn namespaces_take_turns_by_weight() {
    check(&[("a1", 1), ("a2", 1), ("b1", 1), ("a3", 1)], &["a1", "a2", "a3", "b1"]);
    check(&[("a1", 100), ("a2", 100), ("a3", 100), ("b1", 1)], &["a1", "b1", "a2", "a3"]);
    // What a namespace has not used in its turn counts in the next one.
    check(
        &[("a1", 100), ("a2", 150), ("a3", 100), ("b1", 128), ("b2", 128), ("b3", 128)],
        &["a1", "b1", "a2", "b2", "a3", "b3"],
    );
}

#[test]
fn a_large_request_waits_until_others_have_had_as_much() {
    check(&[("a1", 300), ("b1", 128), ("b2", 128), ("b3", 128)], &["b1", "b2", "a1", "b3"]);
    // Or until there are no others.
    check(&[("a1", 300), ("b1", 1), ("a2", 5)], &["b1", "a1", "a2"]);
    // It pays for one slice.
    let mut queue = queue(&[("a1", 1_000_000), ("b1", 1)]);
    for number in 0..50 {
        queue.push(&name("b"), QUANTUM, if number < 31 { "b, first" } else { "b, then" });
    }
    let order = one_by_one(&mut queue);
    let place = order.iter().position(|item| *item == "a1").expect("it was taken");
    assert!((31..=34).contains(&place), "{place}");
}

/// The rest of a batch comes before the later requests of its namespace, and after others.
#[test]
fn an_unfinished_request_stays_first_in_its_namespace() {
    let mut queue = queue(&[("a1", 5_000), ("a2", 1)]);
    let one = RoundSize { requests: 1, work: usize::MAX };
    assert_eq!(take(&mut queue, one), ["a1"]);
    queue.push(&name("b"), 1, "b1");
    queue.put_back_unfinished(&name("a"), 1_000, "a1");
    queue.settle(&name("a"), 5_000, 4_000);
    assert_eq!((queue.weight(), queue.weight_of(&name("a"))), (2, Some(1)), "it does not count as waiting");
    assert_eq!(queue.take_begun_weight(), 4_000);
    assert!(!queue.is_held_up(), "b1 is not");
    assert_eq!(take(&mut queue, one), ["b1"]);
    assert!(queue.is_held_up());
    queue.push(&name("b"), 1, "b1");
    assert_eq!(one_by_one(&mut queue), ["b1", "a1", "a2"]);
}

/// A namespace pays for what its request turned out to be, while others wait.
#[test]
fn unforeseen_work_is_paid_later() {
    let mut queue = queue(&[("a1", 10), ("b1", 100)]);
    let one = RoundSize { requests: 1, work: usize::MAX };
    assert_eq!(take(&mut queue, one), ["a1"]);
    for (item, count) in [("a2", 1), ("b2", 20)] {
        (0..count).for_each(|_| queue.push(&of(item), 100, item));
    }
    queue.settle(&name("a"), 10, 1_000);
    let order = one_by_one(&mut queue);
    let place = order.iter().position(|item| *item == "a2").expect("it was taken");
    assert!((8..=12).contains(&place), "{order:?}");
}

#[test]
fn a_namespace_that_is_alone_owes_nothing() {
    let mut queue = queue(&[("a1", 10), ("a2", 10), ("a3", 10)]);
    let one = RoundSize { requests: 1, work: usize::MAX };
    for item in ["a1", "a2"] {
        assert_eq!(take(&mut queue, one), [item]);
        queue.settle(&name("a"), 10, 1_000_000);
    }
    assert_eq!(take(&mut queue, one), ["a3"]);
    for item in ["a4", "b1", "b2", "b3"] {
        queue.push(&of(item), 100, item);
    }
    assert_eq!(one_by_one(&mut queue), ["a4", "b1", "b2", "b3"], "what was before does not count");
}

#[test]
fn requests_that_are_put_back_pay_nothing() {
    let mut queue = queue(&[("a1", 60), ("a2", 60), ("b1", 60), ("b2", 60)]);
    let two = RoundSize { requests: 2, work: usize::MAX };
    assert_eq!(take(&mut queue, two), ["a1", "a2"]);
    queue.put_back(&name("a"), 60, "a2");
    queue.put_back(&name("a"), 60, "a1");
    assert_eq!(queue.take_begun_weight(), 0);
    assert_eq!(one_by_one(&mut queue), ["a1", "a2", "b1", "b2"]);
    assert_eq!((queue.weight(), queue.take_begun_weight()), (0, 240));
}

#[test]
fn rounds_are_bounded_and_a_large_request_gets_its_own() {
    let requests = [("a1", 40), ("a2", 70), ("a3", 5_000), ("a4", 1), ("a5", 1)];
    let check = |requests_each, work, expect: &[&[&str]]| {
        let mut queue = queue(&requests);
        for round in expect {
            assert_eq!(take(&mut queue, RoundSize { requests: requests_each, work }), *round);
        }
        assert!(queue.is_empty());
    };
    check(usize::MAX, 100, &[&["a1"], &["a2"], &["a3"], &["a4", "a5"]]);
    check(usize::MAX, 0, &[&["a1"], &["a2"], &["a3"], &["a4"], &["a5"]]);
    check(3, usize::MAX, &[&["a1", "a2", "a3"], &["a4", "a5"]]);
}

#[test]
fn dropped_requests_pay_nothing_and_a_verdict_can_end_a_round() {
    let mut queue = queue(&[("a1", 100), ("a2", 100), ("a3", 100), ("b1", 1)]);
    let taken = queue.take(ALL, |item| match *item {
        "a1" | "a2" => Verdict::Drop,
        "b1" => Verdict::Stop,
        _ => Verdict::Begin,
    });
    assert_eq!((&taken.dropped[..], &taken.begin[..]), (&["a1", "a2"][..], &["a3"][..]));
    assert_eq!((queue.weight(), queue.namespaces()), (1, 1));
    assert_eq!(queue.take_begun_weight(), 100);
    // It was accepted once.
    queue.put_back_unfinished(&name("a"), 100, "a3");
    assert_eq!(queue.take(ALL, |_| Verdict::Drop).begin, ["a3"]);
}

#[test]
fn requests_that_were_taken_can_be_removed_alone() {
    let mut queue = queue(&[("a1", 1), ("a2", 1), ("a3", 1), ("b1", 1), ("c1", 1)]);
    assert_eq!(take(&mut queue, RoundSize { requests: 4, work: usize::MAX }), ["a1", "a2", "a3", "b1"]);
    for item in ["b1", "a2", "a1"] {
        queue.put_back_unfinished(&of(item), 1, item);
    }
    queue.push(&name("a"), 1, "a4");
    let mut removed = queue.remove_taken();
    removed.sort_unstable();
    assert_eq!(removed, ["a1", "a2", "b1"]);
    assert_eq!((queue.namespaces(), queue.weight()), (2, 2));
    assert_eq!(queue.drain().collect::<Vec<_>>(), ["a4", "c1"]);
    assert_eq!((queue.is_empty(), queue.weight(), queue.weight_of(&name("a"))), (true, 0, None));
}

#[test]
fn the_queue_does_not_grow_with_the_namespaces_that_it_has_seen() {
    let mut queue = FairQueue::default();
    for number in 0..10_000 {
        queue.push(&name(&number.to_string()), 1, ());
        assert_eq!(queue.take(ALL, |()| Verdict::Begin).begin.len(), 1);
    }
    assert_eq!((queue.lanes.len(), queue.turns.len()), (0, 0));
    assert!(queue.spare.len() <= SPARE);
}

/// Whatever happens: nothing is lost or doubled, and each namespace keeps its order.
#[test]
fn every_request_leaves_once_and_in_order() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut queue = FairQueue::default();
        let (mut number, mut left) = (0, Vec::new());
        let mut begun: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for _ in 0..500 {
            for _ in 0..random.below(5) {
                number += 1;
                let namespace = ["a", "b", "c"][random.below(3) as usize];
                let item = (namespace, number, 1 + random.below(6_000) as usize);
                queue.push(&name(namespace), item.2, item);
            }
            let size = RoundSize { requests: random.below(5) as usize, work: random.below(6_000) as usize };
            let mut taken = queue.take(size, |(_, number, _)| match number % 7 {
                0 => Verdict::Drop,
                _ => Verdict::Begin,
            });
            // Of each namespace, some of the last requests go back, and others were more work than they had paid for.
            for namespace in ["a", "b", "c"] {
                while let Some(last) = taken.begin.iter().rposition(|item| item.0 == namespace)
                    && random.below(3) == 0
                {
                    let item = taken.begin.remove(last);
                    match random.below(2) {
                        0 => queue.put_back(&name(namespace), item.2, item),
                        _ => queue.put_back_unfinished(&name(namespace), item.2, item),
                    }
                }
                queue.settle(&name(namespace), 1, random.below(10_000) as usize);
            }
            left.extend(taken.begin.iter().chain(&taken.dropped).map(|item| item.1));
            for (namespace, number, _) in taken.begin {
                begun.entry(namespace).or_default().push(number);
            }
        }
        left.extend(queue.drain().map(|item| item.1));
        left.sort_unstable();
        assert_eq!(left, (1..=number).collect::<Vec<_>>(), "seed {seed}");
        assert!(begun.values().all(|numbers| numbers.is_sorted()), "seed {seed}");
        assert_eq!((queue.weight(), queue.is_empty()), (0, true), "seed {seed}");
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
