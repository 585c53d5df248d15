//! The work, which is the same for every contender: locks are held and released by clients that have each their own, or
//! one for all; or they are held for long, and extended by heartbeats.

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

/// For how long a lock is held without a heartbeat: none ends in a run.
pub(crate) const TTL: Duration = Duration::from_secs(600);
/// For how long a client waits for a lock, where a contender knows how to wait.
pub(crate) const WAIT: Duration = Duration::from_secs(300);

/// A lock that is held, as its holder knows it.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    /// Its number.
    pub(crate) lock: usize,
    /// What the grant is called.
    pub(crate) id: String,
    /// The holder's secret word.
    pub(crate) session: String,
}

/// What a client does if it cannot have a lock at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Else {
    /// It is told so.
    Refused,
    /// It waits, where the contender knows how to; otherwise it is told so.
    Waits,
}

/// One connection to a contender. What it is asked for is durable when it returns.
pub(crate) trait Client: Send + 'static {
    /// Holds a lock for [`TTL`]. The word is another one each time, for contenders that draw none. None if it was refused.
    fn acquire(
        &mut self,
        lock: usize,
        word: String,
        otherwise: Else,
    ) -> impl Future<Output = Result<Option<Grant>, Failed>> + Send;

    /// Releases a lock; whether it was held still.
    fn release(&mut self, grant: &Grant) -> impl Future<Output = Result<bool, Failed>> + Send;

    /// Holds a lock for [`TTL`] from now on; whether it was held still.
    fn heartbeat(&mut self, grant: &Grant) -> impl Future<Output = Result<bool, Failed>> + Send;
}

pub(crate) fn lock_name(number: usize) -> String {
    format!("lock-{number}")
}

/// The words of a client, none of which comes twice.
struct Words {
    client: usize,
    drawn: u64,
}

impl Words {
    fn of(client: usize) -> Words {
        Words { client, drawn: 0 }
    }

    /// As long as those that Limina draws.
    fn next(&mut self) -> String {
        self.drawn += 1;
        format!("{:016x}{:016x}", self.client, self.drawn)
    }
}

/// Holds and releases a lock that nobody else wants.
pub(crate) struct Pairs {
    lock: usize,
    words: Words,
}

impl Pairs {
    pub(crate) fn new(client: usize) -> Pairs {
        Pairs { lock: client, words: Words::of(client) }
    }
}

impl<C: Client> Work<C> for Pairs {
    async fn step(&mut self, client: &mut C, _: u64, measured: &mut Measured) -> Result<(), Failed> {
        let asked = Instant::now();
        let is_done = match client.acquire(self.lock, self.words.next(), Else::Refused).await? {
            Some(grant) => client.release(&grant).await?,
            None => false,
        };
        measured.note(1, u64::from(!is_done), asked.elapsed());
        Ok(())
    }
}

/// The one lock that all want.
pub(crate) struct Coveted {
    begin: Instant,
    is_held: AtomicBool,
    /// When its last holder sent the release, in nanoseconds from the beginning; 0 before there was one.
    released: AtomicU64,
}

impl Coveted {
    pub(crate) fn new() -> Arc<Coveted> {
        Arc::new(Coveted {
            begin: Instant::now(),
            is_held: AtomicBool::new(false),
            released: AtomicU64::new(0),
        })
    }

    /// Somebody has heard that the lock is theirs. How long that took, from the release before it.
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

    /// Its holder is about to send the release.
    fn releasing(&self) {
        self.released.store(self.nanos(), Ordering::SeqCst);
        self.is_held.store(false, Ordering::SeqCst);
    }

    fn nanos(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }
}

/// Waits for a lock that all want, and releases it at once. What is measured is the hand-over: from sending a release to
/// the next holder's receipt of its grant.
pub(crate) struct Contended {
    coveted: Arc<Coveted>,
    /// Where waiting is not offered, a client sleeps for so long on average, and asks again.
    poll: Duration,
    words: Words,
    random: Random,
}

impl Contended {
    pub(crate) fn new(coveted: Arc<Coveted>, poll: Duration, client: usize) -> Contended {
        Contended { coveted, poll, words: Words::of(client), random: Random::new(client) }
    }

    /// Between nothing and twice the average, so that clients do not ask in step.
    fn pause(&mut self) -> Duration {
        const STEPS: usize = 1 << 20;
        self.poll * 2 * self.random.below(STEPS) as u32 / STEPS as u32
    }
}

impl<C: Client> Work<C> for Contended {
    async fn step(&mut self, client: &mut C, _: u64, measured: &mut Measured) -> Result<(), Failed> {
        let grant = loop {
            match client.acquire(0, self.words.next(), Else::Waits).await? {
                Some(grant) => break grant,
                None => tokio::time::sleep(self.pause()).await,
            }
        };
        let hand_over = self.coveted.granted()?;
        self.coveted.releasing();
        let refused = u64::from(!client.release(&grant).await?);
        match hand_over {
            Some(took) => measured.note(1, refused, took),
            // The first has nobody to take over from, and counts nothing.
            None => measured.refused += refused,
        }
        Ok(())
    }
}

/// Holds so many locks, with so many clients, and returns what each of them holds.
pub(crate) async fn hold<C: Contender<Client: Client>>(
    contender: &C,
    locks: usize,
    clients: usize,
) -> Result<Vec<Arc<[Grant]>>, Failed> {
    let mut tasks = Vec::new();
    for number in 0..clients {
        let mut client = contender.connect().await?;
        tasks.push(tokio::spawn(async move {
            let (mut words, mut grants) = (Words::of(number), Vec::new());
            for lock in (number..locks).step_by(clients) {
                let grant = client.acquire(lock, words.next(), Else::Refused).await?;
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

/// Extends locks, one after the other.
pub(crate) struct Heartbeats {
    held: Arc<[Grant]>,
    next: usize,
    pace: Option<Pace>,
}

impl Heartbeats {
    /// Of what a client holds, which is something; as fast as they are answered.
    pub(crate) fn new(held: Arc<[Grant]>) -> Heartbeats {
        Heartbeats { held, next: 0, pace: None }
    }

    /// The same, one in this time, beginning at some moment within it.
    pub(crate) fn paced(held: Arc<[Grant]>, every: Duration, client: usize) -> Heartbeats {
        Heartbeats { held, next: 0, pace: Some(Pace::new(every, client)) }
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
