//! A build farm. A job needs a place on the farm, the lock of its repository and build minutes of its team, all together. Jobs
//! wait in one fair queue for places and locks. A worker that dies leaves nothing behind.
//!
//! Run it with `cargo run -p limina-embed --example build_farm`.

use limina_embed::{
    Error, Limina, Namespace,
    decisions::{Check, Commit, Decide, Refusal},
    ledger::NewLimit,
    limiter::{Limit, Rule},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

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

    // This worker dies: it neither commits nor sends heartbeats. Its job holds a place, the lock and 30 minutes until its ttl
    // has passed.
    farm.decisions().decide(job("dead", "site", 30).ttl(Duration::from_millis(300))).await?;
    log.lock().expect("no task panics").push("dead: started, and its worker died".into());

    let jobs = [("build-1", "site", 20), ("build-2", "api", 15), ("build-3", "site", 10)];
    let workers: Vec<_> = jobs
        .into_iter()
        .map(|(id, repository, minutes)| {
            tokio::spawn(work(farm.clone(), log.clone(), id, repository, minutes))
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    // 30 of 100 minutes are used. Nobody waits for minutes: they do not come back.
    match farm.decisions().decide(job("build-4", "site", 71).wait(Duration::from_secs(60))).await {
        Err(Error::Refused(Refusal::Refused(refused))) if !refused.holds.is_empty() => {
            log.lock().expect("no task panics").push("build-4: not enough minutes".into());
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

/// A worker: waits for its job's turn, builds, and commits the minutes that the build took.
async fn work(
    farm: Namespace,
    log: Log,
    id: &'static str,
    repository: &'static str,
    minutes: i64,
) -> Result<(), Error<Refusal>> {
    let decisions = farm.decisions();
    let request = job(id, repository, minutes).ttl(Duration::from_secs(30)).wait(Duration::from_secs(60));
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
    let used = minutes - 5;
    log.lock().expect("no task panics").push(format!("{id}: built {repository} in {used} minutes"));
    decisions.commit(Commit::new(id).value("minutes/core", used)).await?;
    Ok(())
}

#[cfg(test)]
#[tokio::test]
async fn a_dead_worker_leaves_nothing_behind() {
    let limina = Limina::in_memory().await.unwrap();
    let log = Log::default();
    run(&limina, &log).await.unwrap();
    let farm = limina.namespace("farm").unwrap();
    let mut lines = log.lock().unwrap().clone();
    assert_eq!(lines[0], "dead: started, and its worker died");
    // The other repository need not wait for the lock.
    lines[1..4].sort();
    assert_eq!(
        lines[1..],
        [
            "build-1: built site in 15 minutes",
            "build-2: built api in 10 minutes",
            "build-3: built site in 5 minutes",
            "build-4: not enough minutes",
        ]
    );
    let minutes = farm.ledger().limit("minutes/core").await.unwrap().value;
    assert_eq!((minutes.commit_value, minutes.hold_value), (30, 0));
    assert_eq!(farm.decisions().get("dead").await.unwrap().state, limina_embed::decisions::State::Expired);
    let open = farm.decisions().list(limina_embed::decisions::Filter::all(), None, 10).await.unwrap();
    assert_eq!(open.items, []);
}
