//! What a scenario plays on: a server, an honest client beside it, and the measurement of both.

use crate::{
    Failed,
    honest::{Honest, Samples},
    http::{self, Answer, Connection},
    scenario::MAX_RECOVERY,
    server::Server,
    tally::Tally,
};
use serde_json::Value;
use std::{
    net::SocketAddr,
    sync::{Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// The namespace of the hostile clients.
pub(crate) const NAMESPACE: &str = "hostile";
/// No start takes this long. The deadline turns a hang into a failure.
const START_DEADLINE: Duration = Duration::from_secs(120);
/// Connections that prepare a scenario at the same time.
const PREPARING: usize = 32;
/// The time after which a refused request of the preparation is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The span in which the honest client must be served as before to count as recovered.
const RECOVERED_FOR: Duration = Duration::from_millis(200);
/// What the honest client's slowest request may take more than before, once the server has recovered.
const RECOVERED_DELAY: Duration = Duration::from_millis(50);

/// The preparation counts as over when all requests of the honest client take less than this, or after `MAX_SETTLING`.
const SETTLED: Duration = Duration::from_millis(50);
const MAX_SETTLING: Duration = Duration::from_secs(20);

/// The spans of a scenario.
#[derive(Clone, Copy)]
pub(crate) struct Timing {
    /// How long the honest client is measured before the hostilities.
    quiet: Duration,
    /// How long the hostilities go on.
    pub(crate) hostile: Duration,
}

impl Timing {
    pub(crate) const FULL: Timing =
        Timing { quiet: Duration::from_millis(1500), hostile: Duration::from_secs(6) };
    pub(crate) const TINY: Timing =
        Timing { quiet: Duration::from_millis(50), hostile: Duration::from_millis(100) };
}

/// Starts a server on the scenario's directory.
pub(crate) type Start = dyn Fn() -> Result<Server, Failed> + Send + Sync;

/// A server and an honest client.
pub(crate) struct Stage {
    server: Mutex<Server>,
    /// It owns the directory, so it is dropped after the server.
    start: Box<Start>,
    honest: Option<Honest>,
    quiet: Mutex<Samples>,
    tally: Tally,
    remarks: Mutex<Vec<String>>,
    timing: Timing,
    divisor: usize,
}

impl Stage {
    pub(crate) fn new(
        start: Box<Start>,
        timing: Timing,
        divisor: usize,
        with_honest: bool,
    ) -> Result<Stage, Failed> {
        let server = start()?;
        let honest = if with_honest { Some(Honest::start(server.address())?) } else { None };
        let (quiet, tally, remarks) = (Mutex::default(), Tally::default(), Mutex::default());
        Ok(Stage { start, server: server.into(), honest, quiet, tally, remarks, timing, divisor })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        lock(&self.server).address()
    }

    /// Stops the server, starts it again, and returns the time from its start until it is ready.
    pub(crate) async fn restart(&self) -> Result<Duration, Failed> {
        lock(&self.server).stop()?;
        let begin = Instant::now();
        *lock(&self.server) = (self.start)()?;
        while begin.elapsed() < START_DEADLINE {
            if http::ask(self.address(), "GET", "/readyz", b"").await?.status == 200 {
                return Ok(begin.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err("the server was not ready in time".into())
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// A number of the scenario at the size at which it is played; at least 1.
    pub(crate) fn scaled(&self, number: usize) -> usize {
        (number / self.divisor).max(1)
    }

    /// How long the hostilities go on.
    pub(crate) fn hostile_time(&self) -> Duration {
        self.timing.hostile
    }

    /// Says something about this run in the table.
    pub(crate) fn remark(&self, text: impl Into<String>) {
        lock(&self.remarks).push(text.into());
    }

    pub(crate) fn remarks(&self) -> Vec<String> {
        lock(&self.remarks).clone()
    }

    /// A path of the hostile namespace.
    pub(crate) fn path(&self, path: &str) -> String {
        format!("/v1/ns/{NAMESPACE}{path}")
    }

    /// The bytes of a POST of the hostile namespace.
    pub(crate) fn post(&self, path: &str, body: &str) -> Vec<u8> {
        http::request("POST", &self.path(path), "", body.as_bytes())
    }

    /// One request of the preparation, which must succeed.
    pub(crate) async fn prepare(&self, method: &str, path: &str, body: &Value) -> Result<Answer, Failed> {
        let answer = http::ask(self.address(), method, &self.path(path), body.to_string().as_bytes()).await?;
        match answer.status {
            200..300 => Ok(answer),
            status => Err(format!("preparing {path}: {status}: {}", answer.text()).into()),
        }
    }

    /// Many requests of the preparation, on several connections. `body` returns the body of a request by its number.
    pub(crate) async fn prepare_many(
        &self,
        method: &'static str,
        path: impl Fn(usize) -> String,
        count: usize,
        body: impl Fn(usize) -> Value,
    ) -> Result<(), Failed> {
        let lanes = PREPARING.min(count);
        let mut tasks = JoinSet::new();
        for lane in 0..lanes {
            let numbers = (lane..count).step_by(lanes);
            let requests: Vec<Vec<u8>> = numbers
                .map(|number| {
                    let path = self.path(&path(number));
                    http::request(method, &path, "", body(number).to_string().as_bytes())
                })
                .collect();
            let address = self.address();
            tasks.spawn(async move {
                let mut connection = Connection::open(address).await?;
                let mut requests = requests.iter().peekable();
                while let Some(request) = requests.peek() {
                    let answer = connection.exchange(request).await?;
                    match answer.status {
                        200..300 => drop(requests.next()),
                        // A refused body may have been left unread.
                        503 => {
                            tokio::time::sleep(RETRY_PAUSE).await;
                            connection = Connection::open(address).await?;
                        }
                        status => return Err(format!("preparing: {status}: {}", answer.text()).into()),
                    }
                }
                Ok::<(), Failed>(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Ends the preparation: measures the honest client undisturbed, then begins to measure the hostilities.
    pub(crate) async fn begin(&self) -> Result<(), Failed> {
        if let Some(honest) = &self.honest {
            // What the preparation has delayed must not count as quiet.
            let begin = Instant::now();
            loop {
                honest.take_until_now();
                tokio::time::sleep(RECOVERED_FOR).await;
                if honest.take_until_now().quantile(1.0) < SETTLED || begin.elapsed() > MAX_SETTLING {
                    break;
                }
            }
            tokio::time::sleep(self.timing.quiet).await;
            *lock(&self.quiet) = honest.take_until_now();
        }
        lock(&self.server).reset_peak()
    }

    /// Ends the hostilities, and returns what the honest client has measured during them.
    pub(crate) fn end(&self) -> Samples {
        self.honest.as_ref().map(Honest::take_until_now).unwrap_or_default()
    }

    pub(crate) fn quiet(&self) -> Samples {
        std::mem::take(&mut lock(&self.quiet))
    }

    /// The time from `begin`, the end of the hostilities, until the honest client is served as it was before. None: not within
    /// ten times the bound.
    pub(crate) fn recovery(&self, begin: Instant) -> Option<Duration> {
        let Some(honest) = &self.honest else { return Some(Duration::ZERO) };
        let bound = lock(&self.quiet).quantile(1.0) + RECOVERED_DELAY;
        while begin.elapsed() < 10 * MAX_RECOVERY {
            let span = Instant::now();
            honest.take();
            thread::sleep(RECOVERED_FOR);
            let samples = honest.take();
            let is_refused = samples.refused + samples.refused_heartbeats > 0;
            if !samples.latencies.is_empty() && !is_refused && samples.quantile(1.0) <= bound {
                return Some(span - begin);
            }
        }
        None
    }

    /// The server, to see what has become of it.
    pub(crate) fn server(&self) -> MutexGuard<'_, Server> {
        lock(&self.server)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
