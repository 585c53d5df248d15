//! Automatic batching: calls of one kind that are made while a request of this kind is in flight travel together in the next one.
//!
//! A call that finds no request in flight is sent at once, by its caller's task, so batching never delays a single call. The server handles a batch for
//! little more than a single request, so batching pays off exactly when there is load. Under load, up to four requests of about the same size are in flight:
//! the client reads the answers of one while the server decides the others.

use crate::{
    error::{Done, Error, Result},
    transport::{Answer, Request, Scope, Transport, pause, random_id},
};
use bytes::Bytes;
use reqwest::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::{
    runtime::{self, Handle},
    sync::oneshot,
    time::Instant,
};

/// A kind of request that has a form for many items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Check,
    Hold,
    Commit,
}

const MAX_ITEMS: usize = 256;
/// From this size on, a batch may travel beside another one. The cost of a request is then small beside the cost of its items.
const LARGE: usize = 16;
/// How many large batches of a lane are in flight at most. Full ones are sent without a bound.
const MAX_IN_FLIGHT: usize = 4;

impl Kind {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Kind::Check => "/limiter/check",
            Kind::Hold => "/ledger/hold",
            Kind::Commit => "/ledger/commit",
        }
    }

    /// The field of a batch that holds the items.
    fn items(self) -> &'static str {
        match self {
            Kind::Check => "checks",
            Kind::Hold | Kind::Commit => "operations",
        }
    }

    /// Whether requests bear an `Idempotency-Key`. One key is for the whole batch.
    fn keyed(self) -> bool {
        self != Kind::Check
    }
}

/// The calls that wait, and those in flight, by lane. A lane without either is absent, unless it is still watched.
#[derive(Default)]
pub(crate) struct Queues(Mutex<HashMap<Lane, Queue>>);

impl Queues {
    fn lock(&self) -> MutexGuard<'_, HashMap<Lane, Queue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls travel together only if they are of one kind, for one namespace, and equally patient.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Lane {
    kind: Kind,
    namespace: Arc<str>,
    timeout: Duration,
    retries: u32,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    requests_in_flight: usize,
    calls_in_flight: usize,
    /// The runtimes in which a [`Watch`] is on the calls that wait.
    watched_in: Vec<runtime::Id>,
}

struct Waiting {
    item: Item,
    answer: oneshot::Sender<Result<Answer>>,
    /// The runtime of the caller.
    runtime: Handle,
}

struct Item {
    body: Bytes,
    /// When the call's time is over.
    deadline: Instant,
}

/// Sends an item, alone or with others. Returns its own answer.
pub(crate) async fn send(scope: &Scope, kind: Kind, item: Bytes) -> Result<Answer> {
    let circuit = &scope.transport.circuit;
    let is_check = kind == Kind::Check;
    if is_check {
        // Here too, because a check must not queue behind a request that hangs.
        circuit.refuse_if_open(Instant::now())?;
    }
    let mut retry = 0;
    loop {
        let answer = send_once(scope, kind, item.clone()).await?;
        retry += 1;
        // Requests repeat themselves. An item that failed inside a batch that was answered is repeated here.
        let nothing_done = answer.unavailability() == Some(Done::No);
        let ends = is_check && circuit.is_open();
        if !nothing_done || ends || !scope.transport.may_retry(scope, retry, answer.retry_after) {
            return Ok(answer);
        }
        tokio::time::sleep(pause(retry, answer.retry_after)).await;
    }
}

async fn send_once(scope: &Scope, kind: Kind, body: Bytes) -> Result<Answer> {
    let item = Item { body, deadline: Instant::now() + scope.timeout };
    match join(scope, scope.lane(kind), item) {
        // The caller's own task sends the request: a task between the two would only delay a call that is alone. The exchange is boxed
        // to keep it out of the futures of calls that wait, which would otherwise be as large.
        Joined::Alone(turn, item) => {
            Box::pin(async move { exchange(&Mutex::new(Some(turn)), scope, kind, &[item]).await }).await
        }
        Joined::Queued(answered) => answered
            .await
            .unwrap_or_else(|_| Err(Error::unavailable(Done::Unknown, "the runtime was shut down"))),
    }
}

enum Joined {
    /// No request of the lane was in flight. The call is.
    Alone(InFlight, Item),
    Queued(oneshot::Receiver<Result<Answer>>),
}

fn join(scope: &Scope, lane: Lane, item: Item) -> Joined {
    let mut queues = scope.transport.queues.lock();
    let queue = match queues.get_mut(&lane) {
        Some(queue) => queue,
        None => queues.entry(lane.clone()).or_default(),
    };
    if queue.requests_in_flight == 0 {
        queue.depart(1);
        drop(queues);
        return Joined::Alone(InFlight { scope: scope.clone(), lane, calls: 1 }, item);
    }
    let (answer, answered) = oneshot::channel();
    let runtime = Handle::current();
    let watch = queue.needs_watch(runtime.id()).then(|| Watch::new(scope, &lane, runtime.clone()));
    queue.waiting.push_back(Waiting { item, answer, runtime });
    let ready = queue.take_ready(scope.timeout);
    drop(queues);
    if let Some(watch) = watch {
        watch.start();
    }
    launch(scope, &lane, ready);
    Joined::Queued(answered)
}

/// Fails the calls of a lane that wait for too long. Most requests are answered before that, and a task that sleeps costs less than a timer
/// for each call. Each runtime has its own: a call must not depend on a runtime that somebody else blocks.
struct Watch {
    transport: Weak<Transport>,
    lane: Lane,
    runtime: Handle,
    is_on: bool,
}

impl Watch {
    fn new(scope: &Scope, lane: &Lane, runtime: Handle) -> Watch {
        Watch { transport: Arc::downgrade(&scope.transport), lane: lane.clone(), runtime, is_on: true }
    }

    /// [`Queues`] must not be locked: a runtime that was shut down drops the task here.
    fn start(mut self) {
        self.runtime.clone().spawn(async move {
            while let Some(deadline) = self.look() {
                tokio::time::sleep_until(deadline).await;
            }
        });
    }

    /// Fails the calls that are late. Returns when the next one is. If none waits, the watch is over.
    fn look(&mut self) -> Option<Instant> {
        let transport = self.transport.upgrade()?;
        let mut queues = transport.queues.lock();
        let queue = queues.get_mut(&self.lane)?;
        queue.expire(Instant::now(), self.lane.timeout);
        let next = queue.waiting.front().map(|waiting| waiting.item.deadline);
        if next.is_none() {
            self.end(&mut queues);
        }
        next
    }

    fn end(&mut self, queues: &mut HashMap<Lane, Queue>) {
        self.is_on = false;
        if let Some(queue) = queues.get_mut(&self.lane) {
            queue.watched_in.retain(|runtime| *runtime != self.runtime.id());
            remove_if_unused(queues, &self.lane);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.is_on
            && let Some(transport) = self.transport.upgrade()
        {
            self.end(&mut transport.queues.lock());
        }
    }
}

fn remove_if_unused(queues: &mut HashMap<Lane, Queue>, lane: &Lane) {
    if queues.get(lane).is_some_and(|queue| queue.requests_in_flight == 0 && queue.watched_in.is_empty()) {
        queues.remove(lane);
    }
}

impl Queue {
    /// Whether a call of this runtime that begins to wait needs a watch. If so, it counts as watched.
    fn needs_watch(&mut self, runtime: runtime::Id) -> bool {
        let is_new = !self.watched_in.contains(&runtime);
        if is_new {
            self.watched_in.push(runtime);
        }
        is_new
    }

    /// Takes the batches that need not wait any longer, and counts them as in flight.
    fn take_ready(&mut self, timeout: Duration) -> Vec<Vec<Waiting>> {
        if self.next_batch() == 0 {
            return Vec::new();
        }
        // A request that has almost no time left is not worth sending.
        self.expire(Instant::now() + (timeout / 10).min(Duration::from_millis(5)), timeout);
        let mut ready = Vec::new();
        loop {
            let count = self.next_batch();
            if count == 0 {
                return ready;
            }
            // A caller that has stopped waiting does not want its call any more.
            let wanted = |waiting: &Waiting| !waiting.answer.is_closed();
            let batch: Vec<_> = self.waiting.drain(..count).filter(wanted).collect();
            if !batch.is_empty() {
                self.depart(batch.len());
                ready.push(batch);
            }
        }
    }

    /// How many of the waiting calls are sent now, in one request.
    fn next_batch(&self) -> usize {
        let waiting = self.waiting.len();
        let all = waiting + self.calls_in_flight;
        // Requests that are in flight side by side stay of about the same size.
        let side_by_side = (all / LARGE).clamp(1, MAX_IN_FLIGHT);
        let share = waiting.min(all.div_ceil(side_by_side));
        match self.requests_in_flight {
            _ if waiting >= MAX_ITEMS => MAX_ITEMS,
            0 => share,
            requests => {
                let all_are_large = self.calls_in_flight >= requests * LARGE;
                let has_room = requests < side_by_side && waiting >= all / side_by_side;
                if all_are_large && has_room { share } else { 0 }
            }
        }
    }

    fn depart(&mut self, calls: usize) {
        self.requests_in_flight += 1;
        self.calls_in_flight += calls;
    }

    /// Fails the calls that have waited for as long as they have time for an answer. The oldest call is in front.
    fn expire(&mut self, now: Instant, timeout: Duration) {
        let expired = self.waiting.iter().take_while(|waiting| waiting.item.deadline <= now).count();
        for waiting in self.waiting.drain(..expired) {
            let message = format!("not sent within {timeout:?}: earlier requests are unanswered");
            let _caller_gone = waiting.answer.send(Err(Error::unavailable(Done::No, message)));
        }
    }
}

/// Sends each batch from a task of its own, because a caller that stops waiting must not take the others' answers along.
/// [`Queues`] must not be locked: a runtime that was shut down drops the task here, which unlocks the next batch.
fn launch(scope: &Scope, lane: &Lane, ready: Vec<Vec<Waiting>>) {
    for batch in ready {
        let turn = InFlight { scope: scope.clone(), lane: lane.clone(), calls: batch.len() };
        let runtime = batch.first().map(|waiting| waiting.runtime.clone());
        if let Some(runtime) = runtime {
            runtime.spawn(dispatch(turn, batch));
        }
    }
}

async fn dispatch(turn: InFlight, batch: Vec<Waiting>) {
    let (scope, kind) = (turn.scope.clone(), turn.lane.kind);
    let turn = Mutex::new(Some(turn));
    let (items, callers): (Vec<_>, Vec<_>) =
        batch.into_iter().map(|waiting| (waiting.item, waiting.answer)).unzip();
    let answers = match exchange(&turn, &scope, kind, &items).await {
        Ok(answer) if items.len() == 1 => Ok(vec![answer]),
        Ok(answer) => split(answer, items.len()),
        Err(error) => Err(error),
    };
    match answers {
        Ok(answers) => {
            for (caller, answer) in callers.into_iter().zip(answers) {
                let _caller_gone = caller.send(Ok(answer));
            }
        }
        Err(error) => {
            for caller in callers {
                let _caller_gone = caller.send(Err(error.clone()));
            }
        }
    }
    // Callers that ask again at once join the next batch. Otherwise the first of them would travel alone, and the others after it.
    if items.len() > 1 {
        tokio::task::yield_now().await;
    }
}

/// Sends a request until it is answered. While it pauses before a retry, it is not in flight: others need not wait for it. After
/// an answer the turn is still there, for the caller to end.
async fn exchange(
    turn: &Mutex<Option<InFlight>>,
    scope: &Scope,
    kind: Kind,
    items: &[Item],
) -> Result<Answer> {
    let request = &request(scope, kind, items)?;
    let turn = || turn.lock().unwrap_or_else(PoisonError::into_inner);
    let attempt = |retry| async move {
        // The time of a call includes its time in the queue. A request has as much time as the newest of its calls.
        let left = items.last().map(|newest| newest.deadline.duration_since(Instant::now()));
        let timeout = if retry == 0 { left.unwrap_or_default() } else { scope.timeout };
        let counted = turn().take().unwrap_or_else(|| InFlight::another(scope, kind, items.len()));
        let result = scope.transport.attempt(request, timeout).await;
        if result.as_ref().is_ok_and(|answer| answer.unavailability().is_none()) {
            *turn() = Some(counted);
        }
        result
    };
    scope.transport.persist(scope, (kind.keyed(), kind == Kind::Check), attempt).await
}

/// Counts a request as in flight for as long as this lives. When it ends, the calls that have gathered are sent.
struct InFlight {
    scope: Scope,
    lane: Lane,
    calls: usize,
}

impl InFlight {
    fn another(scope: &Scope, kind: Kind, calls: usize) -> InFlight {
        let lane = scope.lane(kind);
        scope.transport.queues.lock().entry(lane.clone()).or_default().depart(calls);
        InFlight { scope: scope.clone(), lane, calls }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut queues = self.scope.transport.queues.lock();
        let Some(queue) = queues.get_mut(&self.lane) else { return };
        queue.requests_in_flight -= 1;
        queue.calls_in_flight -= self.calls;
        let ready = queue.take_ready(self.scope.timeout);
        remove_if_unused(&mut queues, &self.lane);
        drop(queues);
        launch(&self.scope, &self.lane, ready);
    }
}

/// A call that travels alone is sent as the single request.
fn request(scope: &Scope, kind: Kind, items: &[Item]) -> Result<Request> {
    let (path, body) = match items {
        [alone] => (kind.path().to_owned(), alone.body.clone()),
        _ => {
            let mut body = format!("{{\"{}\":[", kind.items()).into_bytes();
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    body.push(b',');
                }
                body.extend_from_slice(&item.body);
            }
            body.extend_from_slice(b"]}");
            (format!("{}/batch", kind.path()), body.into())
        }
    };
    Ok(Request {
        method: Method::POST,
        url: scope.url(&path, &[])?,
        body: Some(body),
        key: if kind.keyed() { Some(random_id()?) } else { None },
        last_event_id: None,
        text: false,
        is_check: kind == Kind::Check,
    })
}

/// The answers to the items of a batch. An answer to the batch as a whole (401, 413, …) is the answer to each of them.
fn split(answer: Answer, count: usize) -> Result<Vec<Answer>> {
    let Answer { status, body, retry_after, sent_at, .. } = answer;
    if status >= 400 {
        return Ok((0..count).map(|_| Answer::new(status, body.clone(), retry_after, sent_at)).collect());
    }
    #[derive(Deserialize)]
    struct Results<'a> {
        #[serde(borrow)]
        results: Vec<&'a RawValue>,
    }
    let unreadable = |error| Error::unreadable(status, error);
    let json = str::from_utf8(&body).map_err(|error| Error::unreadable(status, error))?;
    let Results { results } = serde_json::from_str(json).map_err(unreadable)?;
    if results.len() != count {
        return Err(Error::unreadable(status, "it has another number of items than the request"));
    }
    let answer = |json: &RawValue| {
        let status = status_of(json.get())?;
        Ok(Answer::new(status, body.slice_ref(json.get().as_bytes()), retry_after, sent_at))
    };
    results.into_iter().map(answer).collect::<serde_json::Result<_>>().map_err(unreadable)
}

/// The status of an item. The server writes it first, so the item need not be parsed here only for its status.
fn status_of(item: &str) -> serde_json::Result<u16> {
    #[derive(Deserialize)]
    struct Item {
        status: u16,
    }
    let first = item.strip_prefix("{\"status\":").and_then(|rest| rest.split_once(','));
    match first.and_then(|(status, _)| status.parse().ok()) {
        Some(status) => Ok(status),
        None => serde_json::from_str(item).map(|Item { status }| status),
    }
}

impl Scope {
    fn lane(&self, kind: Kind) -> Lane {
        let namespace = self.namespace.clone();
        Lane { kind, namespace, timeout: self.timeout, retries: self.retries }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_wait_for_the_request_in_flight_or_travel_beside_a_large_one() {
        #[track_caller]
        fn check(waiting: usize, in_flight: &[usize], expected: &[usize]) {
            let mut queue = Queue::default();
            in_flight.iter().for_each(|calls| queue.depart(*calls));
            let timeout = Duration::from_secs(60);
            let (senders, _callers): (Vec<_>, Vec<_>) = (0..waiting).map(|_| oneshot::channel()).unzip();
            for answer in senders {
                let item = Item { body: Bytes::new(), deadline: Instant::now() + timeout };
                queue.waiting.push_back(Waiting { item, answer, runtime: Handle::current() });
            }
            let sizes: Vec<_> = queue.take_ready(timeout).iter().map(Vec::len).collect();
            assert_eq!(sizes, expected, "{waiting} waiting, {in_flight:?} in flight");
        }
        check(0, &[], &[]);
        check(1, &[], &[1]);
        check(30, &[], &[30]);
        check(63, &[], &[21, 21, 21]);
        check(64, &[], &[16, 16, 16, 16]);
        check(255, &[1], &[]);
        check(300, &[1], &[256]);
        check(15, &[15], &[]);
        check(14, &[32], &[]);
        check(15, &[16], &[]);
        check(16, &[16], &[16]);
        check(30, &[32], &[21]);
        check(60, &[20], &[20, 20, 20]);
        check(99, &[25, 25, 25, 25], &[]);
    }

    #[test]
    fn the_status_of_an_item_is_found_at_any_place() {
        for item in [r#"{"status":429,"a":1}"#, r#"{"a":1,"status":429}"#, r#"{ "status" : 429 }"#] {
            assert_eq!(status_of(item).unwrap(), 429, "{item}");
        }
        assert!(status_of(r#"{"status":"no","a":1}"#).is_err());
        assert!(status_of("{}").is_err());
    }
}
