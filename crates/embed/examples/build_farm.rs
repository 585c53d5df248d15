//! A build farm. A job needs a place on the farm, the lock of its repository and build minutes of its team, all together. Jobs
//! wait in one fair queue for places and locks, and a job that waits for its repository leaves the free places to others. A worker
//! that dies leaves nothing behind.
//!
//! Run it with `cargo run -p limina-embed --example build_farm`.

use limina_embed::{
    Error, Limina, Namespace,
    decisions::{Check, Commit, Decide, Refusal},
    ledger::NewLimit,
    limiter::{Limit, Rule},
    selection::Query,
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// How long a job holds everything without a heartbeat.
const TTL: Duration = Duration::from_secs(30);

/// What happened, in order.
type Log = Arc<Mutex<Vec<String>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limina = match std::env::args().nth(1) {
        Some(directory) => Limina::open(directory).await?,
        None => Limina::in_memory().await?,
    };
    let log = Log::default();
    run(&limina, &log).await?;
    for line in log.lock().expect("no task panics").iter() {
        println!("{line}");
    }
    limina.close().await?;
    Ok(())
}

async fn run(limina: &Limina, log: &Log) -> Result<(), Box<dyn std::error::Error>> {
    let farm = limina.namespace("farm")?;
    farm.limiter().put_rule(Rule::new("places", Limit::AtMost(2)).group_by(["farm"])).await?;
    farm.ledger().create_limit(NewLimit::new("minutes/core").ceiling(100)).await?;

    // Two jobs for one repository: the second one waits for its lock. It takes no place on the farm meanwhile, and keeps nobody from
    // it: the job for the other repository starts at once.
    farm.decisions().decide(job("build-1", "site", 20).ttl(TTL)).await?;
    let second = tokio::spawn(work(farm.clone(), log.clone(), "build-2", "site", 10));
    while farm.locks().list(Query::default(), None, 10).await?.items.iter().all(|lock| lock.waiting == 0) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    work(farm.clone(), log.clone(), "build-3", "api", 15).await?;
    finish(&farm, log, "build-1", "site", 20).await?;
    second.await??;

    // This worker dies: it neither commits nor sends heartbeats. Its job holds a place, the lock and 30 minutes until its ttl
    // has passed.
    farm.decisions().decide(job("dead", "site", 30).ttl(Duration::from_millis(300))).await?;
    note(log, "dead: started, and its worker died");
    work(farm.clone(), log.clone(), "build-4", "site", 15).await?;

    // 40 of 100 minutes are used. Nobody waits for minutes: they do not come back.
    match farm.decisions().decide(job("build-5", "site", 61).wait(Duration::from_secs(60))).await {
        Err(Error::Refused(Refusal::Refused(refused))) if !refused.holds.is_empty() => {
            note(log, "build-5: not enough minutes");
        }
        other => return Err(format!("it should be refused: {other:?}").into()),
    }
    Ok(())
}

/// A request for everything that a job needs.
fn job(id: &str, repository: &str, minutes: i64) -> Decide {
    Decide::new(id)
        .owner(id)
        .check(Check::of([("farm", "eu")]))
        .exclusive([("repository", repository)])
        .hold("minutes/core", minutes)
}

/// A worker: waits for its job's turn, and builds.
async fn work(
    farm: Namespace,
    log: Log,
    id: &'static str,
    repository: &'static str,
    minutes: i64,
) -> Result<(), Error<Refusal>> {
    let decisions = farm.decisions();
    let request = job(id, repository, minutes).ttl(TTL).wait(Duration::from_secs(60));
    loop {
        match decisions.decide(request.clone()).await {
            Ok(_) => break,
            // The farm was full, or the repository was locked, for the whole wait. Ask again.
            Err(Error::Refused(Refusal::Refused(refused))) if refused.holds.is_empty() => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => return Err(error),
        }
    }
    // A long build sends a heartbeat every ten seconds. The fencing token goes with everything that it writes.
    decisions.heartbeat(id).await?;
    finish(&farm, &log, id, repository, minutes).await
}

/// Commits the minutes that the build took.
async fn finish(
    farm: &Namespace,
    log: &Log,
    id: &str,
    repository: &str,
    minutes: i64,
) -> Result<(), Error<Refusal>> {
    let used = minutes - 5;
    note(log, &format!("{id}: built {repository} in {used} minutes"));
    farm.decisions().commit(Commit::new(id).value("minutes/core", used)).await?;
    Ok(())
}

fn note(log: &Log, line: &str) {
    log.lock().expect("no task panics").push(line.into());
}

#[cfg(test)]
#[tokio::test]
async fn a_dead_worker_leaves_nothing_behind() {
    let limina = Limina::in_memory().await.unwrap();
    let log = Log::default();
    run(&limina, &log).await.unwrap();
    let farm = limina.namespace("farm").unwrap();
    assert_eq!(
        *log.lock().unwrap(),
        [
            "build-3: built api in 10 minutes",
            "build-1: built site in 15 minutes",
            "build-2: built site in 5 minutes",
            "dead: started, and its worker died",
            "build-4: built site in 10 minutes",
            "build-5: not enough minutes",
        ]
    );
    let minutes = farm.ledger().limit("minutes/core").await.unwrap();
    assert_eq!((minutes.commit_value, minutes.hold_value), (40, 0));
    assert_eq!(farm.decisions().get("dead").await.unwrap().state, limina_embed::decisions::State::Expired);
    let open = farm.decisions().list(limina_embed::decisions::Filter::all(), None, 10).await.unwrap();
    assert_eq!(open.items, []);
}
