//! The work of locks: clients acquire and release their own lock, or one lock that all want; or they hold many locks and
//! extend them with heartbeats.

use crate::{
    Failed,
    load::{Contender, Pace, Random, Work},
    measure::Measured,
};
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Time to live of a lock. No lock expires in a run.
pub(crate) const TTL: Duration = Duration::from_secs(600);
/// The longest time for which a client waits for a lock.
pub(crate) const WAIT: Duration = Duration::from_secs(300);

/// A lock that a client holds.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    /// The number of the lock.
    pub(crate) lock: usize,
    /// The id of the grant.
    pub(crate) id: String,
    /// The secret that proves that the client is the holder.
    pub(crate) session: String,
}

/// What happens if a lock is not free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfHeld {
    /// The request is refused.
    Refuse,
    /// The request waits. In a contender that cannot wait, it is refused.
    Wait,
}

/// One connection to a contender. The effect of each call is durable when the call returns.
pub(crate) trait Client: Send + 'static {
    /// Acquires a lock for [`TTL`]; none if it was refused. `secret` differs in each call, for contenders that do not draw
    /// secrets themselves.
    fn acquire(
        &mut self,
        lock: usize,
        secret: String,
        if_held: IfHeld,
    ) -> impl Future<Output = Result<Option<Grant>, Failed>> + Send;

    /// Releases a lock, and returns whether it was still held.
    fn release(&mut self, grant: &Grant) -> impl Future<Output = Result<bool, Failed>> + Send;

    /// Extends a lock to [`TTL`] from now, and returns whether it was still held.
    fn heartbeat(&mut self, grant: &Grant) -> impl Future<Output = Result<bool, Failed>> + Send;
}

pub(crate) fn lock_name(number: usize) -> String {
    format!("lock-{number}")
}

/// The secrets of a client, each of which is unique.
struct Secrets {
    client: usize,
    drawn: u64,
}

impl Secrets {
    fn of(client: usize) -> Secrets {
        Secrets { client, drawn: 0 }
    }

    /// A secret as long as those that Limina draws.
    fn next(&mut self) -> String {
        self.drawn += 1;
        format!("{:016x}{:016x}", self.client, self.drawn)
    }
}

/// Acquires and releases a lock that no other client wants.
pub(crate) struct Pairs {
    lock: usize,
    secrets: Secrets,
}

impl Pairs {
    pub(crate) fn new(client: usize) -> Pairs {
        Pairs { lock: client, secrets: Secrets::of(client) }
    }
}

impl<C: Client> Work<C> for Pairs {
    async fn step(&mut self, client: &mut C, _: u64, measured: &mut Measured) -> Result<(), Failed> {
        let asked = Instant::now();
        let is_done = match client.acquire(self.lock, self.secrets.next(), IfHeld::Refuse).await? {
            Some(grant) => client.release(&grant).await?,
            None => false,
        };
        measured.note(1, u64::from(!is_done), asked.elapsed());
        Ok(())
    }
}

/// What the clients that contend for one lock know about it together.
pub(crate) struct SharedLock {
    begin: Instant,
    is_held: AtomicBool,
    /// When the last holder sent the release, in nanoseconds from the beginning; 0 before the first release.
    released: AtomicU64,
}

impl SharedLock {
    pub(crate) fn new() -> Arc<SharedLock> {
        Arc::new(SharedLock {
            begin: Instant::now(),
            is_held: AtomicBool::new(false),
            released: AtomicU64::new(0),
        })
    }

    /// A client has received its grant. Returns the time since the release before it; none for the first grant.
    fn granted(&self) -> Result<Option<Duration>, Failed> {
        let now = self.nanos();
        if self.is_held.swap(true, Ordering::SeqCst) {
            return Err("a lock was held by two at once".into());
        }
        match self.released.load(Ordering::SeqCst) {
            0 => Ok(None),
            before => Ok(Some(Duration::from_nanos(now.saturating_sub(before)))),
        }
    }

    /// The holder is about to send the release.
    fn releasing(&self) {
        self.released.store(self.nanos(), Ordering::SeqCst);
        self.is_held.store(false, Ordering::SeqCst);
    }

    fn nanos(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }
}

/// Waits for the lock that all clients want, and releases it at once. The latency is that of the hand-over: from sending a
/// release until the next holder receives its grant.
pub(crate) struct Contended {
    lock: Arc<SharedLock>,
    /// The average time that a refused client sleeps before it retries, in a contender that cannot wait.
    poll: Duration,
    secrets: Secrets,
    random: Random,
}

impl Contended {
    pub(crate) fn new(lock: Arc<SharedLock>, poll: Duration, client: usize) -> Contended {
        Contended { lock, poll, secrets: Secrets::of(client), random: Random::new(client) }
    }

    /// A random time between 0 and twice the average, so that clients do not retry at the same time.
    fn pause(&mut self) -> Duration {
        const STEPS: usize = 1 << 20;
        self.poll * 2 * self.random.below(STEPS) as u32 / STEPS as u32
    }
}

impl<C: Client> Work<C> for Contended {
    async fn step(&mut self, client: &mut C, _: u64, measured: &mut Measured) -> Result<(), Failed> {
        let grant = loop {
            match client.acquire(0, self.secrets.next(), IfHeld::Wait).await? {
                Some(grant) => break grant,
                None => tokio::time::sleep(self.pause()).await,
            }
        };
        let hand_over = self.lock.granted()?;
        self.lock.releasing();
        let refused = u64::from(!client.release(&grant).await?);
        match hand_over {
            Some(took) => measured.note(1, refused, took),
            // The first grant is no hand-over and is not counted.
            None => measured.refused += refused,
        }
        Ok(())
    }
}

/// Acquires this many locks with this many clients, and returns the grants of each client.
pub(crate) async fn acquire_all<C: Contender<Client: Client>>(
    contender: &C,
    locks: usize,
    clients: usize,
) -> Result<Vec<Arc<[Grant]>>, Failed> {
    let mut tasks = Vec::new();
    for number in 0..clients {
        let mut client = contender.connect().await?;
        tasks.push(tokio::spawn(async move {
            let (mut secrets, mut grants) = (Secrets::of(number), Vec::new());
            for lock in (number..locks).step_by(clients) {
                let grant = client.acquire(lock, secrets.next(), IfHeld::Refuse).await?;
                grants.push(grant.ok_or("a lock was refused that nobody held")?);
            }
            Ok::<_, Failed>(Arc::from(grants))
        }));
    }
    let mut held = Vec::new();
    for task in tasks {
        held.push(task.await??);
    }
    Ok(held)
}

/// Extends the locks of a client, one after the other.
pub(crate) struct Heartbeats {
    held: Arc<[Grant]>,
    next: usize,
    pace: Option<Pace>,
}

impl Heartbeats {
    /// `held` must not be empty. One heartbeat is sent in each interval of `every`; without it, as fast as they are answered.
    pub(crate) fn new(held: Arc<[Grant]>, every: Option<Duration>, client: usize) -> Heartbeats {
        Heartbeats { held, next: 0, pace: every.map(|every| Pace::new(every, client)) }
    }
}

impl<C: Client> Work<C> for Heartbeats {
    async fn step(&mut self, client: &mut C, _: u64, measured: &mut Measured) -> Result<(), Failed> {
        let grant = &self.held[self.next];
        self.next = (self.next + 1) % self.held.len();
        let asked = match &mut self.pace {
            Some(pace) => pace.next().await,
            None => Instant::now(),
        };
        let is_held = client.heartbeat(grant).await?;
        measured.note(1, u64::from(!is_held), asked.elapsed());
        Ok(())
    }
}
