//! Requests that are decided by the task that submits them, while nobody else drives the shard.
//!
//! All tasks of these tests share one thread. So whatever happens between two `await`s of a test happens without the shard's task.

use super::{info, memory, name, namespace_in, start, store::FaultyStore, submit};
use futures_util::FutureExt;
use limina_engine::{
    Command, KeyValues, Millis, Name, Outcome, Request,
    events::Reply,
    key_values::Value,
    ledger::{self, Change, Context, Hold, NewLimit, Transfer},
    limiter::{self, Check, Limit, NewRule, RuleChange, Take, Window},
    selection::Selection,
};
use limina_node::{NodeFailure, NodeOptions, Service, Unavailable};
use limina_shard::Options as ShardOptions;
use limina_store::{ShardId, memory::Memory};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::time::sleep;

const SHARD: ShardId = ShardId(0);
/// On the paused clock: every task has done what it can do without more time.
const SETTLED: Duration = Duration::from_millis(1);

fn namespace() -> Name {
    namespace_in(SHARD)
}

/// A rule that allows one check an hour.
fn rule() -> Command {
    let rule = NewRule {
        name: name("rule"),
        group_by: vec!["user".into()],
        selection: Selection::default(),
        limit: Limit::AtMost(1),
        window: Some(Window::Fixed { per: Millis(3_600_000) }),
        shadow: false,
        durability: None,
        description: None,
    };
    let change = RuleChange::new(limiter::Change::CreateRule(rule)).expect("a valid rule");
    Command::Limiter(limiter::Command::Change(change))
}

fn check() -> Command {
    let key_values = KeyValues::new(vec![("user", Value::<&str>::Integer(1))]).expect("valid");
    let take = Take::new(key_values, 1).expect("valid");
    Command::Limiter(limiter::Command::Check(Check::new(vec![take]).expect("valid")))
}

fn hold(operation_id: &str) -> Command {
    let changes = vec![Change::new(name("a"), 1)];
    let hold = Hold::new(name(operation_id), changes).expect("valid");
    Command::Ledger(ledger::Command::Transfer(Transfer::Hold(hold)))
}

async fn ask(service: &Service, command: Command) -> Result<Outcome, Unavailable> {
    service.submit(Request::new(namespace(), command)).await
}

#[tokio::test(start_paused = true)]
async fn a_relaxed_check_is_answered_without_the_shards_task() {
    let (service, node) = start(&memory(), NodeOptions::default()).await;
    ask(&service, rule()).await.expect("the shard serves");
    let first = ask(&service, check()).now_or_never().expect("it is answered at once");
    assert!(matches!(first, Ok(Outcome::Limiter(Ok(_)))), "{first:?}");
    let second = ask(&service, check()).now_or_never().expect("it is answered at once");
    assert!(matches!(second, Ok(Outcome::Limiter(Err(_)))), "{second:?}");
    node.stop().await;
}

/// An append in flight does not hold up relaxed checks, and what they took is stored at the end.
#[tokio::test(start_paused = true)]
async fn a_relaxed_check_does_not_wait_for_an_append() {
    let store = memory();
    let (service, node) = start(&store, NodeOptions::default()).await;
    ask(&service, rule()).await.expect("the shard serves");
    store.hold_appends(true);
    let namespace = namespace();
    let mut event = pin!(submit(&service, &namespace, "e"));
    assert!(event.as_mut().now_or_never().is_none(), "its append waits");
    sleep(SETTLED).await;
    let check_now = ask(&service, check()).now_or_never().expect("it is answered at once");
    assert!(matches!(check_now, Ok(Outcome::Limiter(Ok(_)))), "{check_now:?}");
    store.hold_appends(false);
    event.await.expect("the shard serves");
    node.stop().await;
    let (service, node) = start(&store, NodeOptions::default()).await;
    let again = ask(&service, check()).await;
    assert!(matches!(again, Ok(Outcome::Limiter(Err(_)))), "{again:?}");
    node.stop().await;
}

/// A request is decided when its future is polled for the first time. The client goes right after that.
#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_does_not_undo_what_was_decided() {
    let store = memory();
    let (service, node) = start(&store, NodeOptions::default()).await;
    submit(&service, &namespace(), "before").await.expect("the shard serves");
    let appends = store.appends();
    assert!(submit(&service, &namespace(), "gone").now_or_never().is_none(), "it waits for its append");
    assert_eq!(store.appends(), appends, "only the shard's task appends");
    sleep(SETTLED).await;
    assert_eq!(store.appends(), appends + 1);
    assert_eq!(info(&service, &namespace()).await.expect("the shard serves").incubating, 2);
    node.stop().await;
}

/// Several requests that are decided before the shard's task runs share one append.
#[tokio::test(start_paused = true)]
async fn requests_that_are_decided_before_the_task_runs_share_an_append() {
    let store = memory();
    let (service, node) = start(&store, NodeOptions::default()).await;
    let namespace = namespace();
    submit(&service, &namespace, "before").await.expect("the shard serves");
    let appends = store.appends();
    let (a, b, c) = tokio::join!(
        submit(&service, &namespace, "a"),
        submit(&service, &namespace, "b"),
        submit(&service, &namespace, "c"),
    );
    let clocks = [a, b, c].map(clock_of);
    assert_eq!(clocks[1..], [clocks[0] + 1, clocks[0] + 2]);
    assert_eq!(store.appends(), appends + 1);
    node.stop().await;
}

/// The batch is full, and requests wait in the queue. When the append is done, the batch has room again. A request that arrives
/// before the shard's task has taken the waiting ones must not overtake them.
#[tokio::test(start_paused = true)]
async fn a_request_does_not_overtake_those_that_wait() {
    let store = memory();
    let shard = ShardOptions { max_batch: 2, ..ShardOptions::default() };
    let (service, node) = start(&store, NodeOptions { shard, ..NodeOptions::default() }).await;
    submit(&service, &namespace(), "before").await.expect("the shard serves");
    store.hold_appends(true);
    let mut earlier = Vec::new();
    for number in 0..12 {
        let service = service.clone();
        let event = format!("e{number}");
        earlier.push(tokio::spawn(async move { submit(&service, &namespace(), &event).await }));
        sleep(SETTLED).await;
    }
    store.hold_appends(false);
    let mut last = 0;
    for task in earlier {
        // Submits one more at every point at which the shard's task may have gone on.
        let (namespace, event) = (namespace(), format!("late {last}"));
        let (early, late) = tokio::join!(task, submit(&service, &namespace, &event));
        let early = clock_of(early.expect("no panic"));
        assert!(last < early, "requests are decided in the order of their arrival");
        assert!(early < clock_of(late), "a later request came first");
        last = early;
    }
    node.stop().await;
}

/// A panic in a round is a panic of the shard, whichever task runs the round.
#[tokio::test(start_paused = true)]
async fn a_panic_in_the_task_of_a_client_closes_the_shard() {
    let store: Arc<FaultyStore<Memory>> = memory();
    let (service, node) = start(&store, NodeOptions::default()).await;
    let limit = NewLimit { name: name("a"), limit_id: None, context: Context::default(), ceiling: None };
    ask(&service, Command::Ledger(ledger::Command::CreateLimit(limit))).await.expect("the shard serves");
    store.panic_in_look_ups_of(SHARD);
    // The look-up of the operation's id panics in the first poll. The answer comes when the shard's task has ended.
    let mut lost = pin!(ask(&service, hold("op")));
    assert!(lost.as_mut().now_or_never().is_none());
    assert_eq!(lost.await.unwrap_err(), Unavailable::OutcomeUnknown);
    let NodeFailure::Shard { shard, .. } = node.failed().await else { panic!("the shard has failed") };
    assert_eq!(shard, SHARD.0);
    assert_eq!(ask(&service, hold("op")).await.unwrap_err(), Unavailable::ShardUnavailable);
    node.stop().await;
}

fn clock_of(answer: Result<Reply, Unavailable>) -> u64 {
    match answer.expect("the shard serves") {
        Reply::Submitted(submitted) => submitted.clock,
        other => panic!("{other:?}"),
    }
}
