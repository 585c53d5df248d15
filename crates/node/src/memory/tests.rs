//! Reservations up to each threshold, what requests may add to the memory, and shares of the budget.

use super::*;
use limina_engine::{
    Command, Millis, Name, Page,
    events::{self, Mode, StreamTerms},
};

const MIB: usize = 1 << 20;

fn budget(mib: usize) -> Budget {
    Budget::new((mib * MIB) as u64, &Metrics::new())
}

#[test]
fn each_priority_has_its_threshold() {
    // The limit is 160 MiB, and this many MiB are in use already.
    let check = |used: usize, more: usize, priority: Priority, expect: bool| {
        let budget = budget(160);
        let _used = budget.reserve_anyway(Kind::State, used * MIB);
        let reserved = budget.reserve(Kind::Requests, more * MIB, priority);
        assert_eq!(reserved.is_ok(), expect, "{more} more than {used} as {priority:?}");
        let expected = if expect { used + more } else { used };
        assert_eq!(budget.used(), (expected * MIB) as u64, "a refusal reserves nothing");
    };
    check(139, 1, Priority::State, true);
    check(140, 1, Priority::State, false);
    check(140, 10, Priority::Buffer, true);
    check(150, 1, Priority::Buffer, false);
    check(150, 10, Priority::Request, true);
    check(160, 1, Priority::Request, false);
    check(160, 1, Priority::Reachable, true);
}

#[test]
fn at_the_threshold_of_state_only_requests_that_add_none_are_admitted() {
    let name = |text: &str| Name::new(text).unwrap();
    let request = |command| Request::new(name("n"), command);
    let delete = request(Command::DeleteNamespace);
    let terms = StreamTerms::new(Mode::OnlyOnce, Millis(1_000)).unwrap();
    let put = request(Command::Events(events::Command::Put { name: name("s"), terms }));
    let get = request(Command::Events(events::Command::Get(name("s"))));

    let budget = budget(160);
    let mut state = budget.account(Kind::State);
    let check = |request: &Request, expect: bool| {
        assert_eq!(budget.admit(request).is_ok(), expect, "{request:?}");
    };
    state.set(140 * MIB);
    assert!(budget.is_short());
    check(&put, true);
    state.set(140 * MIB + 1);
    check(&put, false);
    check(&get, true);
    check(&delete, true);
    state.set(120 * MIB);
    check(&put, true);
    assert!(!budget.is_short());
    drop(state);
    assert_eq!(budget.used(), 0);
}

#[test]
fn pages_reserve_memory_before_they_exist() {
    let list = |limit| {
        let command = Command::Events(events::Command::List(Page::new(None, limit).unwrap()));
        Request::new(Name::new("n").unwrap(), command)
    };
    let budget = budget(16);
    let few = budget.admit(&list(10)).unwrap().expect("a reservation");
    assert_eq!(few.bytes(), 40 << 10);
    let pages: Vec<_> = (0..7).map(|_| budget.admit(&list(1_000)).unwrap()).collect();
    assert_eq!(budget.used_by(Kind::Answers), (7 * 512 + 40) << 10);
    assert!(budget.admit(&list(1_000)).is_err(), "answers have a quarter of 16 MiB");
    drop((few, pages));
    assert_eq!(budget.used(), 0);
}

#[test]
fn one_kind_of_buffers_leaves_room_for_the_others() {
    let budget = budget(160);
    let bodies = budget.reserve(Kind::Bodies, 40 * MIB, Priority::Buffer).unwrap();
    assert!(budget.reserve(Kind::Bodies, 1, Priority::Buffer).is_err());
    assert!(budget.reserve(Kind::Answers, MIB, Priority::Buffer).is_ok());
    assert!(budget.reserve(Kind::Bodies, 1, Priority::Request).is_err(), "whatever the priority");
    drop(bodies);
    assert!(budget.reserve(Kind::Bodies, MIB, Priority::Buffer).is_ok());
}

#[test]
fn reservations_grow_shrink_and_end_with_their_bytes() {
    let budget = budget(16);
    let mut reservation = budget.reserve(Kind::Answers, MIB, Priority::Buffer).unwrap();
    assert_eq!(reservation.grow_to(4 * MIB, Priority::Buffer), Ok(()));
    assert_eq!(reservation.grow_to(5 * MIB, Priority::Buffer), Err(MemoryFull));
    assert_eq!((reservation.bytes(), budget.used_by(Kind::Answers)), (4 * MIB, 4 * MIB as u64));
    reservation.shrink_to(2 * MIB);
    reservation.shrink_to(3 * MIB);
    assert_eq!(budget.used(), 2 * MIB as u64);

    let bytes = reservation.attach_to(Bytes::from_static(b"an answer"));
    let slice = bytes.slice(3..);
    drop(bytes);
    assert_eq!((&slice[..], budget.used()), (&b"answer"[..], 2 * MIB as u64));
    drop(slice);
    assert_eq!(budget.used(), 0);
}

#[test]
fn without_a_limit_nothing_is_refused() {
    let budget = Budget::unlimited();
    let held = budget.reserve(Kind::Bodies, 1 << 40, Priority::State).unwrap();
    assert!(!budget.is_short());
    assert_eq!((budget.limit(), budget.used()), (None, 1 << 40));
    drop(held);
    assert_eq!(budget.used(), 0);
}
