//! Automatic batching: calls of one kind that are made while a request of this kind is in flight travel together in the next one.
//!
//! A call that finds no request in flight is sent at once, so batching never delays a single call. The server handles a batch for
//! little more than a single request, so batching pays off exactly when there is load.

use crate::{
    error::{Done, Error, Result},
    transport::{Answer, Request, Scope, pause, random_id},
};
use bytes::Bytes;
use reqwest::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::oneshot, time::Instant};

/// A kind of request that has a form for many items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Check,
    Hold,
    Commit,
}

const MAX_ITEMS: usize = 256;

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

/// The calls that wait, and the number of requests in flight, by lane. A lane without either is absent.
#[derive(Default)]
pub(crate) struct Queues(Mutex<HashMap<Lane, Queue>>);

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
    in_flight: usize,
}

struct Waiting {
    item: Bytes,
    answer: oneshot::Sender<Result<Answer>>,
    /// When the call's time is over.
    deadline: Instant,
}

/// Sends an item, alone or with others. Returns its own answer.
pub(crate) async fn send(scope: &Scope, kind: Kind, item: Bytes) -> Result<Answer> {
    let mut retry = 0;
    loop {
        let answer = enqueue(scope, kind, item.clone()).await?;
        retry += 1;
        // Requests repeat themselves. An item that failed inside a batch that was answered is repeated here.
        let nothing_done = answer.unavailability() == Some(Done::No);
        if !nothing_done || !scope.transport.may_retry(scope, retry, answer.retry_after) {
            return Ok(answer);
        }
        tokio::time::sleep(pause(retry, answer.retry_after)).await;
    }
}

async fn enqueue(scope: &Scope, kind: Kind, item: Bytes) -> Result<Answer> {
    let lane = scope.lane(kind);
    let (answer, mut answered) = oneshot::channel();
    let deadline = Instant::now() + scope.timeout;
    scope.queues().entry(lane.clone()).or_default().waiting.push_back(Waiting { item, answer, deadline });
    flush(scope, &lane);
    let result = tokio::select! {
        result = &mut answered => result,
        () = tokio::time::sleep_until(deadline) => {
            if let Some(queue) = scope.queues().get_mut(&lane) {
                queue.expire(deadline, scope.timeout);
            }
            // Either the line above has failed the call, or its request is in flight and has an end of its own.
            answered.await
        }
    };
    result.unwrap_or_else(|_| Err(Error::unavailable(Done::Unknown, "the runtime was shut down")))
}

/// Sends what need not wait.
fn flush(scope: &Scope, lane: &Lane) {
    let mut queues = scope.queues();
    let Some(queue) = queues.get_mut(lane) else { return };
    // A request that has almost no time left is not worth sending.
    queue.expire(Instant::now() + (scope.timeout / 10).min(Duration::from_millis(5)), scope.timeout);
    while queue.waiting.len() >= MAX_ITEMS || (!queue.waiting.is_empty() && queue.in_flight == 0) {
        let count = queue.waiting.len().min(MAX_ITEMS);
        // A caller that has stopped waiting does not want its call any more.
        let wanted = |waiting: &Waiting| !waiting.answer.is_closed();
        let items: Vec<_> = queue.waiting.drain(..count).filter(wanted).collect();
        if items.is_empty() {
            continue;
        }
        queue.in_flight += 1;
        // A task of its own, because a caller that stops waiting must not take the others' answers along.
        tokio::spawn(dispatch(scope.clone(), lane.clone(), items));
    }
    if queue.in_flight == 0 {
        queues.remove(lane);
    }
}

impl Queue {
    /// Fails the calls that have waited for as long as they have time for an answer. The oldest call is in front.
    fn expire(&mut self, now: Instant, timeout: Duration) {
        let expired = self.waiting.iter().take_while(|waiting| waiting.deadline <= now).count();
        for waiting in self.waiting.drain(..expired) {
            let message = format!("not sent within {timeout:?}: earlier requests are unanswered");
            let _caller_gone = waiting.answer.send(Err(Error::unavailable(Done::No, message)));
        }
    }
}

async fn dispatch(scope: Scope, lane: Lane, items: Vec<Waiting>) {
    let result = exchange(&scope, &lane, &items).await;
    flush(&scope, &lane);
    match result {
        Ok(answers) => {
            for (waiting, answer) in items.into_iter().zip(answers) {
                let _caller_gone = waiting.answer.send(Ok(answer));
            }
        }
        Err(error) => {
            for waiting in items {
                let _caller_gone = waiting.answer.send(Err(error.clone()));
            }
        }
    }
}

async fn exchange(scope: &Scope, lane: &Lane, items: &[Waiting]) -> Result<Vec<Answer>> {
    // `flush` has counted the first attempt.
    let mut counted = Some(InFlight { scope, lane });
    let request = request(scope, lane.kind, items)?;
    let answer = scope
        .transport
        .persist(scope, lane.kind.keyed(), |retry| {
            // The time of a call includes its time in the queue. A request has as much time as the newest of its calls.
            let left = items.last().map(|newest| newest.deadline.duration_since(Instant::now()));
            let timeout = if retry == 0 { left.unwrap_or_default() } else { scope.timeout };
            let counted = counted.take();
            let request = &request;
            async move {
                let counted = counted.unwrap_or_else(|| InFlight::another(scope, lane));
                let result = scope.transport.attempt(request, timeout).await;
                // While this request pauses before a retry, it is not in flight: others need not wait for it.
                drop(counted);
                flush(scope, lane);
                result
            }
        })
        .await?;
    if items.len() == 1 { Ok(vec![answer]) } else { split(answer, items.len()) }
}

/// A call that travels alone is sent as the single request.
fn request(scope: &Scope, kind: Kind, items: &[Waiting]) -> Result<Request> {
    let (path, body) = match items {
        [alone] => (kind.path().to_owned(), alone.item.clone()),
        _ => {
            let mut body = format!("{{\"{}\":[", kind.items()).into_bytes();
            for (place, waiting) in items.iter().enumerate() {
                if place > 0 {
                    body.push(b',');
                }
                body.extend_from_slice(&waiting.item);
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
    #[derive(Deserialize)]
    struct Item {
        status: u16,
    }
    let unreadable = |error| Error::unreadable(status, error);
    let Results { results } = serde_json::from_slice(&body).map_err(unreadable)?;
    if results.len() != count {
        return Err(Error::unreadable(status, "it has another number of items than the request"));
    }
    let answer = |json: &RawValue| {
        let Item { status } = serde_json::from_str(json.get())?;
        Ok(Answer::new(status, body.slice_ref(json.get().as_bytes()), retry_after, sent_at))
    };
    results.into_iter().map(answer).collect::<serde_json::Result<_>>().map_err(unreadable)
}

/// Counts a request as in flight for as long as it lives, also if its task is dropped with its runtime.
struct InFlight<'s> {
    scope: &'s Scope,
    lane: &'s Lane,
}

impl<'s> InFlight<'s> {
    fn another(scope: &'s Scope, lane: &'s Lane) -> InFlight<'s> {
        scope.queues().entry(lane.clone()).or_default().in_flight += 1;
        InFlight { scope, lane }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.scope.queues().get_mut(self.lane) {
            queue.in_flight -= 1;
        }
    }
}

impl Scope {
    fn lane(&self, kind: Kind) -> Lane {
        let namespace = self.namespace.clone();
        Lane { kind, namespace, timeout: self.timeout, retries: self.retries }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Lane, Queue>> {
        self.transport.queues.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
