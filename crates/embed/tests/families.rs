//! Every family through the face of the library, in memory.

use limina_embed::{
    Error, Failure, Limina, Name, Namespace, Position, Quota, QuotaExceeded, QuotaTable,
    events::{self, ChangeKind, FollowEnded, Message, Mode, Stream},
    ledger::{self, AsOf, Hold, LimitPatch, NewLimit, OperationFilter, Transfer, TransferReply},
    limiter::{self, Check, Limit, NewLease, Override, OverridePatch, Rule, RulePatch, SetOverrides},
    locks::{self, Acquire, Lock},
    selection::Query,
};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

async fn namespace() -> Namespace {
    let limina = Limina::in_memory().await.unwrap();
    limina.namespace("shop").unwrap()
}

fn names<'n>(names: impl IntoIterator<Item = &'n Name>) -> Vec<&'n str> {
    names.into_iter().map(Name::as_str).collect()
}

fn exclusive(key: &str, value: &str) -> Lock {
    Lock::exclusive([(key, value)]).unwrap()
}

/// A request for one lock that does not wait.
fn only(lock: Lock) -> Acquire {
    Acquire::new(vec![lock], MINUTE).unwrap()
}

#[tokio::test]
async fn ledger() {
    let limina = Limina::in_memory().await.unwrap();
    let ledger = limina.namespace("shop").unwrap().ledger();
    let new = NewLimit::new("a").ceiling(10).limit_id("id-of-a").context("kind", "card");
    let a = ledger.create_limit(new).await.unwrap();
    assert_eq!((a.ceiling, a.limit_id.as_ref().map(Name::as_str)), (Some(10), Some("id-of-a")));
    assert_eq!(a.context.get("kind").map(|text| &**text), Some("card"));
    let duplicate = ledger.create_limit(NewLimit::new("a")).await.unwrap_err();
    assert!(matches!(duplicate.refusal(), Some(ledger::Refusal::DuplicateLimitName { .. })), "{duplicate}");

    let held = ledger.hold(Hold::new("op-1").change("a", 6)).await.unwrap();
    assert_eq!(held.values[0].hold_value, 6);
    let refused = ledger.hold(Hold::new("op-2").change("a", 6)).await.unwrap_err();
    assert!(matches!(refused.refusal(), Some(ledger::Refusal::LimitExceeded { .. })), "{refused}");
    let latest = limina.refusals(None).unwrap().next().await.unwrap().items.pop().unwrap();
    assert_eq!((&*latest.code, latest.operation_id), ("LimitExceeded", Some(Name::new("op-2").unwrap())));
    let committed = ledger.commit_part("op-1", [("a", 4)]).await.unwrap();
    assert_eq!((committed.values[0].commit_value, committed.values[0].hold_value), (4, 0));

    let patched = ledger.patch_limit("a", LimitPatch::new().ceiling(None)).await.unwrap();
    assert_eq!((patched.ceiling, patched.context.len()), (None, 1));
    let missing = ledger.hold(Hold::new("op-2").change("b", 1)).await.unwrap_err();
    assert!(matches!(missing.refusal(), Some(ledger::Refusal::LimitNotFound { .. })), "{missing}");
    let both = Hold::new("op-2").change("a", 5).change_or_create(NewLimit::new("b").limit_id("id-of-b"), -3);
    ledger.hold(both.expires_after(MINUTE)).await.unwrap();
    ledger.rollback_part("op-2", ["a"]).await.unwrap();
    let operation = ledger.operation("op-2").await.unwrap();
    assert_eq!(operation.holds.len(), 2);
    let filter = OperationFilter::held().in_limit("b");
    let open = ledger.operations(filter, None, 10).await.unwrap();
    assert_eq!(names(open.items.iter().map(|operation| &operation.operation_id)), ["op-2"]);
    let old = OperationFilter::all().older_than(MINUTE);
    assert!(ledger.operations(old, None, 10).await.unwrap().items.is_empty());
    let extended = ledger.extend("op-2", None).await.unwrap();
    assert_eq!(extended.holds[1].expires_at, None);
    let in_use = ledger.delete_limit("b").await.unwrap_err();
    assert!(matches!(in_use.refusal(), Some(ledger::Refusal::LimitInUse { .. })), "{in_use}");
    ledger.rollback("op-2").await.unwrap();

    let batch = [
        Transfer::from(Hold::new("op-3").change("a", 1)),
        Transfer::Commit("op-3".into()),
        Transfer::Commit("unknown".into()),
    ];
    let results = ledger.batch(batch).await.unwrap();
    assert!(matches!(results[0], Ok(TransferReply::Held(_))), "{results:?}");
    assert!(matches!(results[1], Ok(TransferReply::Finished(_))), "{results:?}");
    assert!(matches!(results[2], Err(ledger::Refusal::OperationNotFound { .. })), "{results:?}");

    let now = ledger.values(["b", "a"]).await.unwrap();
    assert_eq!(now.values.iter().map(|value| value.commit_value).collect::<Vec<_>>(), [0, 5]);
    let then = ledger.values_as_of(["a"], AsOf::Position(committed.position)).await.unwrap();
    assert_eq!(then.values[0].commit_value, 4);
    let view = ledger.values_as_of(["a"], AsOf::Operation("op-1".into())).await.unwrap();
    assert_eq!((view.position, view.values[0].hold_value), (held.position, 6));

    let capped = Hold::new("op-4").change_or_create(NewLimit::new("c").ceiling(5), 5);
    ledger.hold(capped).await.unwrap();
    let nearest = ledger.limits_by_use(None, 1).await.unwrap();
    assert_eq!(names(nearest.items.iter().map(|limit| &limit.name)), ["c"]);
    ledger.rollback("op-4").await.unwrap();
    ledger.delete_limit("c").await.unwrap();
    assert!(ledger.operation("op-4").await.unwrap().holds[0].deleted);

    let first = ledger.limits(None, 1).await.unwrap();
    let second = ledger.limits(first.next.as_ref(), 1).await.unwrap();
    let listed = first.items.iter().chain(&second.items).map(|limit| &limit.name);
    assert_eq!((names(listed), second.next), (vec!["a", "b"], None));
    let entries = ledger.entries("a", Some(committed.position), 10).await.unwrap();
    assert_eq!(
        names(entries.items.iter().map(|entry| &entry.operation_id)),
        ["op-2", "op-2", "op-3", "op-3"]
    );
}

#[tokio::test]
async fn limiter() {
    let limiter = namespace().await.limiter();
    let rule = Rule::new("rate", Limit::AtMost(2)).group_by(["user"]).sliding_window(MINUTE);
    limiter.create_rule(rule.clone().description("words")).await.unwrap();
    let duplicate = limiter.create_rule(rule.clone()).await.unwrap_err();
    assert!(matches!(duplicate.refusal(), Some(limiter::Refusal::RuleAlreadyExists { .. })), "{duplicate}");
    limiter.put_rule(rule).await.unwrap();
    assert_eq!(limiter.rule("rate").await.unwrap().description, None);

    let ann = [("user", "ann")];
    assert_eq!(limiter.check(Check::of(ann).hits(2)).await.unwrap().limits[0].remaining, Some(0));
    let Err(Error::Refused(limiter::Refusal::LimitReached(decision))) = limiter.check(ann).await else {
        panic!("the limit is reached");
    };
    assert!(decision.retry_after.is_some(), "{decision:?}");
    let looked = limiter.check_batch([Check::of([("user", "bob")]).dry_run(), Check::of(ann)]).await.unwrap();
    assert_eq!(looked.iter().flatten().map(|decision| decision.allowed).collect::<Vec<_>>(), [true, false]);
    let own = Check::of([("job", 1)]).limit(1, MINUTE);
    limiter.check(own.clone()).await.unwrap();
    assert!(limiter.check(own).await.unwrap_err().refusal().is_some());

    limiter.create_override("rate", Override::new("vip", ann, Limit::Unlimited)).await.unwrap();
    limiter.check(ann).await.unwrap();
    let patch = OverridePatch::new().limit(Limit::AtMost(5));
    assert_eq!(limiter.patch_override("rate", "vip", patch).await.unwrap().limit, Limit::AtMost(5));
    limiter.put_override("rate", Override::new("vip", ann, Limit::AtMost(6))).await.unwrap();
    assert_eq!(limiter.get_override("rate", "vip").await.unwrap().limit, Limit::AtMost(6));
    assert_eq!(limiter.overrides("rate", Query::default(), None, 9).await.unwrap().items.len(), 1);
    assert_eq!(limiter.matches(ann).await.unwrap()[0].matching_overrides.len(), 1);
    limiter.delete_override("rate", "vip").await.unwrap();
    let patched = limiter.patch_rule("rate", RulePatch::new().limit(Limit::AtMost(9)).shadow(true)).await;
    assert!(patched.unwrap().shadow);

    limiter.create_rule(Rule::new("jobs", Limit::AtMost(3)).group_by(["tenant"])).await.unwrap();
    let tenant = [("tenant", 7)];
    let taken = limiter.take_lease(NewLease::of(tenant).hits(2).ttl(MINUTE).owner("worker")).await.unwrap();
    let id = taken.lease.lease_id.as_str();
    assert!(limiter.move_counter(tenant, 2).await.unwrap_err().refusal().is_some(), "2 + 2 is more than 3");
    assert_eq!(limiter.move_counter(tenant, 1).await.unwrap().counter.counters, 3);
    assert_eq!(limiter.set_counter(tenant, 0).await.unwrap().counters, 2);
    assert_eq!(limiter.counters(Query::default(), None, 9).await.unwrap().items[0].leased, 2);
    assert_eq!(limiter.most_used_groups("jobs", 9).await.unwrap()[0].remaining, Some(1));
    limiter.extend_lease(&taken).await.unwrap();
    let other = limiter.extend_lease_as(id, "another session").await.unwrap_err();
    assert!(matches!(other.refusal(), Some(limiter::Refusal::SessionMismatch { .. })), "{other}");
    assert_eq!(limiter.lease(id).await.unwrap().owner.as_ref().map(Name::as_str), Some("worker"));
    assert_eq!(limiter.leases(Some("worker"), None, 9).await.unwrap().items.len(), 1);
    assert_eq!(limiter.leases(Some("other"), None, 9).await.unwrap().items.len(), 0);
    limiter.release_lease(&taken).await.unwrap();
    assert!(limiter.lease(id).await.unwrap_err().refusal().is_some());
    let taken = limiter.take_lease(NewLease::of(tenant).require_match()).await.unwrap();
    limiter.force_release_lease(taken.lease.lease_id.as_str()).await.unwrap();
    let misspelt = [("tennant", 7)];
    let refused = limiter.check(Check::of(misspelt).require_match()).await.unwrap_err();
    assert!(matches!(refused.refusal(), Some(limiter::Refusal::NoRuleApplies { .. })), "{refused}");
    assert!(limiter.take_lease(NewLease::of(misspelt).require_match()).await.is_err());

    let bucket = Rule::new("bucket", Limit::AtMost(1)).bucket(MINUTE, Some(2));
    let rules = || [(bucket.clone(), vec![])];
    let planned = limiter.plan_rule_set("code", rules(), SetOverrides::Closed).await.unwrap();
    assert_eq!(names(&planned.created), ["bucket"]);
    let changes = limiter.put_rule_set("code", rules(), SetOverrides::Closed).await.unwrap();
    assert_eq!(changes, planned);
    let managed = limiter.delete_rule("bucket").await.unwrap_err();
    assert!(matches!(managed.refusal(), Some(limiter::Refusal::RuleManagedBySet { .. })), "{managed}");
    let (listed, read) = (limiter.rule_sets(None, 9).await.unwrap(), limiter.rule_set("code").await.unwrap());
    assert_eq!(names(listed.items.iter().map(|set| &set.name)), [&*read.name]);
    assert_eq!((listed.items[0].rules, read.rules.len()), (1, 1));
    limiter.put_rule_set("other", [], SetOverrides::Open).await.unwrap();
    assert!(limiter.delete_rule_set("other").await.unwrap().is_empty());
    limiter.delete_rule("jobs").await.unwrap();
    let rules = limiter.rules(Query::default(), None, 9).await.unwrap();
    assert_eq!(names(rules.items.iter().map(|rule| &rule.name)), ["bucket", "rate"]);
}

#[tokio::test]
async fn locks() {
    let locks = namespace().await.locks();
    let shelf = || Lock::shared([("shelf", 3)]).unwrap();
    let both = Acquire::new(vec![exclusive("item", "chair"), shelf()], MINUTE).unwrap();
    let held = locks.acquire(both.with_owner(Some(Name::new("ann").unwrap()))).await.unwrap();
    let chair = || only(exclusive("item", "chair"));
    assert_eq!(held.grant.locks.len(), 2);
    let Err(Error::Refused(locks::Refusal::LockHeld(blocked))) = locks.acquire(chair()).await else {
        panic!("the lock is held");
    };
    assert_eq!(blocked.holder.unwrap().owner.as_ref().map(Name::as_str), Some("ann"));
    locks.acquire(only(shelf())).await.unwrap();

    locks.heartbeat(&held).await.unwrap();
    let id = held.grant.lock_id.as_str();
    let other = locks.heartbeat_as(id, "another session").await.unwrap_err();
    assert!(matches!(other.refusal(), Some(locks::Refusal::SessionMismatch { .. })), "{other}");
    assert_eq!(locks.get(id).await.unwrap().locks.len(), 2);
    assert_eq!(locks.list(Query::default(), None, 9).await.unwrap().items.len(), 2);

    let (waited, released) = tokio::join!(
        locks.acquire(chair().with_wait(MINUTE).unwrap()),
        locks.release_as(id, held.session.as_str())
    );
    released.unwrap();
    let next = waited.unwrap();
    assert!(next.grant.fencing_token > held.grant.fencing_token);
    locks.force_release(next.grant.lock_id.as_str()).await.unwrap();
    let gone = locks.release(&next).await.unwrap_err();
    assert!(matches!(gone.refusal(), Some(locks::Refusal::LockNotFound { .. })), "{gone}");
}

#[tokio::test]
async fn a_dropped_acquire_leaves_no_lock() {
    let locks = namespace().await.locks();
    let chair = || only(exclusive("item", "chair")).with_wait(MINUTE).unwrap();
    let first = locks.acquire(chair()).await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire(chair().with_owner(Some(Name::new("gone").unwrap()))).await }
    });
    while locks.get(first.grant.lock_id.as_str()).await.unwrap().waiting == 0 {
        tokio::task::yield_now().await;
    }
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    // Whether the lock was granted to the request that is gone or not: it does not keep the lock.
    locks.release(&first).await.unwrap();
    assert_eq!(
        locks
            .acquire(chair().with_owner(Some(Name::new("next").unwrap())))
            .await
            .unwrap()
            .grant
            .owner
            .unwrap()
            .as_str(),
        "next"
    );
}

#[tokio::test]
async fn events() {
    let events = namespace().await.events();
    let unknown = events.follow("mails").await.unwrap_err();
    assert!(matches!(unknown.refusal(), Some(events::Refusal::StreamNotFound { .. })), "{unknown}");
    let stream = || Stream::new(Mode::StrictlyOnce, Duration::from_secs(3600)).key_frame_every(MINUTE);
    let start = events.put_stream("mails", stream().max_events(2)).await.unwrap().clock;
    events.submit("mails", "ann").await.unwrap();

    let mut follower = events.follow("mails").await.unwrap();
    let Message::KeyFrame(frame) = follower.next().await.unwrap() else { panic!("a key frame comes first") };
    assert_eq!((frame.clock, frame.events.len()), (start + 1, 1));
    events.submit("mails", "bob").await.unwrap();
    let duplicate = events.submit("mails", "ann").await.unwrap_err();
    let refusal = duplicate.refusal();
    assert!(matches!(refusal, Some(events::Refusal::EventConflict { invalidated: true, .. })), "{duplicate}");
    let full = events.submit("mails", "eve").await.unwrap_err();
    assert!(matches!(full.refusal(), Some(events::Refusal::StreamFull { max_events: 2 })), "{full}");
    for expected in [(start + 2, ChangeKind::Submitted, "bob"), (start + 3, ChangeKind::Invalidated, "ann")] {
        let Message::Change(change) = follower.next().await.unwrap() else { panic!("a change") };
        assert_eq!((change.clock, change.kind, &*change.event), expected);
    }

    let mut returning = events.follow_after("mails", start + 2).await.unwrap();
    assert!(matches!(returning.next().await.unwrap(), Message::Change(change) if change.clock == start + 3));
    assert_eq!(events.incubating("mails").await.unwrap().events.len(), 1);
    let events::Changes::Kept(kept) = events.changes("mails", start, 9).await.unwrap() else {
        panic!("kept")
    };
    assert_eq!(kept.len(), 3);
    assert_eq!(events.stream("mails").await.unwrap().clock, start + 3);
    assert_eq!(events.streams(None, 9).await.unwrap().items.len(), 1);
    events.delete_stream("mails").await.unwrap();
    assert_eq!(follower.next().await.unwrap_err(), FollowEnded::Deleted);
}

#[tokio::test]
async fn idempotency_keys() {
    let shop = namespace().await;
    let once = shop.locks().idempotency_key("k-1").unwrap();
    let request = || only(exclusive("item", "chair"));
    let first = once.acquire(request()).await.unwrap();
    let again = once.acquire(request()).await.unwrap();
    assert_eq!(
        (&first.grant.lock_id, &first.session),
        (&again.grant.lock_id, &again.session),
        "the same grant"
    );
    let reused = once.acquire(request().with_owner(Some(Name::new("other").unwrap()))).await.unwrap_err();
    assert_eq!(reused.failure(), Some(&Failure::IdempotencyKeyReused));

    let once = shop.limiter().idempotency_key("k-2").unwrap();
    let lease = || NewLease::of([("tenant", 7)]);
    let first = once.take_lease(lease()).await.unwrap();
    assert_eq!(once.take_lease(lease()).await.unwrap().lease.lease_id, first.lease.lease_id);
    assert_eq!(shop.limiter().leases(None, None, 9).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn namespaces_share_nothing() {
    let limina = Limina::in_memory().await.unwrap();
    let [one, two] = ["one", "two"].map(|name| limina.namespace(name).unwrap());
    one.ledger().create_limit(NewLimit::new("a")).await.unwrap();
    assert!(two.ledger().limit("a").await.unwrap_err().refusal().is_some());
    two.ledger().create_limit(NewLimit::new("a")).await.unwrap();

    let first = limina.namespaces(None, 1).await.unwrap();
    let second = limina.namespaces(first.next.as_ref(), 9).await.unwrap();
    assert_eq!(names(first.items.iter().chain(&second.items).map(|info| &info.name)), ["one", "two"]);
    assert!(first.items[0].position > Position(0));
    assert!(one.delete().await.unwrap());
    assert!(!one.delete().await.unwrap());
    two.ledger().limit("a").await.unwrap();
    assert!(limina.namespace("").is_err());
}

#[tokio::test]
async fn invalid_arguments_are_failures() {
    #[track_caller]
    fn check<T: std::fmt::Debug, R: std::fmt::Debug>(result: Result<T, Error<R>>, field: &str) {
        match result {
            Err(Error::Failed(Failure::Invalid(invalid))) => assert_eq!(invalid.field(), field),
            other => panic!("{other:?}"),
        }
    }
    let shop = namespace().await;
    let (ledger, limiter, events) = (shop.ledger(), shop.limiter(), shop.events());
    check(ledger.limit("").await, "name");
    check(ledger.hold(Hold::new("op")).await, "changes");
    check(ledger.hold(Hold::new("op").change("a", 1).change("a\n", 1)).await, "changes[1].limit_name");
    check(ledger.batch([]).await, "operations");
    check(ledger.limits(None, 0).await, "limit");
    check(
        limiter.create_rule(Rule::new("r", Limit::AtMost(1)).fixed_window(Duration::ZERO)).await,
        "window.per",
    );
    check(limiter.check(Check::of([("user", "ann")]).hits(i64::MIN)).await, "entries[0].hits");
    assert_eq!(Acquire::new(vec![exclusive("item", "a")], Duration::ZERO).unwrap_err().field(), "ttl");
    check(events.put_stream("s", Stream::new(Mode::OnlyOnce, Duration::ZERO)).await, "duration");
    assert!(shop.events().idempotency_key("").is_err());
}

/// Each family refuses what would exceed a quota of the namespace, and nothing else.
#[tokio::test]
async fn quotas() {
    let quotas = [Quota::LedgerLimits, Quota::Rules, Quota::Groups, Quota::LocksHeld, Quota::Streams];
    let one = quotas.into_iter().map(|quota| (quota, Some(1))).collect();
    let limina = Limina::builder().quotas(QuotaTable::new(one, [])).in_memory().await.unwrap();
    let shop = limina.namespace("shop").unwrap();
    let full = |quota| QuotaExceeded { quota, limit: 1, used: 1 };

    shop.ledger().create_limit(NewLimit::new("a")).await.unwrap();
    let refused = shop.ledger().create_limit(NewLimit::new("b")).await.unwrap_err();
    assert_eq!(refused.refusal(), Some(&ledger::Refusal::QuotaExceeded(full(Quota::LedgerLimits))));

    let limiter = shop.limiter();
    let per_user = || Rule::new("per-user", Limit::AtMost(5)).group_by(["user"]).fixed_window(MINUTE);
    limiter.create_rule(per_user()).await.unwrap();
    let refused = limiter.create_rule(Rule::new("other", Limit::AtMost(1))).await.unwrap_err();
    assert_eq!(refused.refusal(), Some(&limiter::Refusal::QuotaExceeded(full(Quota::Rules))));
    let checks = ["ann", "bob", "ann"].map(|user| Check::of([("user", user)]));
    let results = limiter.check_batch(checks).await.unwrap();
    let bob = limiter::Refusal::from(full(Quota::Groups));
    assert!(matches!(&results[..], [Ok(_), Err(refusal), Ok(_)] if *refusal == bob), "{results:?}");

    let _held = shop.locks().acquire(only(exclusive("door", "front"))).await.unwrap();
    let refused = shop.locks().acquire(only(exclusive("door", "back"))).await.unwrap_err();
    assert_eq!(refused.refusal(), Some(&locks::Refusal::QuotaExceeded(full(Quota::LocksHeld))));

    shop.events().put_stream("s1", Stream::new(Mode::OnlyOnce, MINUTE)).await.unwrap();
    let refused = shop.events().put_stream("s2", Stream::new(Mode::OnlyOnce, MINUTE)).await.unwrap_err();
    assert_eq!(refused.refusal(), Some(&events::Refusal::QuotaExceeded(full(Quota::Streams))));

    let other = limina.namespace("other").unwrap();
    other.ledger().create_limit(NewLimit::new("b")).await.unwrap();
}
