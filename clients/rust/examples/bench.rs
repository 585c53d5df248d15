//! Measures what batching brings: 64 concurrent single checks, and one check at a time, each with batching and with one request for
//! each check.
//!
//! ```console
//! $ LIMINA_URL=http://localhost:7070 cargo run --release -p limina-client --example bench -- [SECONDS]
//! ```
//!
//! Batching has no switch. The rival is the same client's request for one check, sent past the queue. Both take turns, and what counts
//! is their ratio in each round: a busy machine slows them alike.

use limina_client::{Error, Limina, Method, key_values, types::CheckReply};
use serde_json::json;
use std::{
    future::Future,
    time::{Duration, Instant},
};

const CALLERS: u32 = 64;
const ROUNDS: u32 = 5;

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Callers in a server are tasks. `main` is none, and would pay for a switch of threads with each check that becomes a task.
    tokio::spawn(measure()).await.expect("the benchmark panicked")
}

async fn measure() -> Result<(), Error> {
    let url = std::env::var("LIMINA_URL").unwrap_or_else(|_| "http://localhost:7070".to_owned());
    let seconds = std::env::args().nth(1).and_then(|seconds| seconds.parse().ok()).unwrap_or(5.0);
    // A round has three measurements.
    let time = Duration::from_secs_f64(seconds) / (3 * ROUNDS);
    let client = Limina::builder(url).namespace("bench").timeout(Duration::from_secs(10)).build()?;
    let window = json!({"type": "fixed", "per": "1h"});
    client
        .rules()
        .put("bench", &json!({"group_by": ["caller"], "limit": 1_000_000_000, "window": window}))
        .await?;
    latencies(&client, time / 10).await?;

    let (mut rates, mut times) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let together = rate(&client, batched, time).await?;
        let apart = rate(&client, single, time).await?;
        let (with_batching, without) = latencies(&client, time).await?;
        rates.push(together / apart);
        times.push(with_batching.as_secs_f64() / without.as_secs_f64());
        println!(
            "{CALLERS} callers: {together:.0} checks/s with batching, {apart:.0} with one request each; 1 caller: {} µs and {} µs",
            with_batching.as_micros(),
            without.as_micros()
        );
    }
    println!(
        "{CALLERS} callers: batching is {:.1} × as fast (median of {ROUNDS} rounds)",
        median(&mut rates)
    );
    println!("1 caller: batching takes {:.3} × as long (median of {ROUNDS} rounds)", median(&mut times));
    Ok(())
}

async fn batched(client: Limina, caller: u32) -> Result<bool, Error> {
    Ok(client.check(key_values! {"caller": caller}).await?.allowed)
}

async fn single(client: Limina, caller: u32) -> Result<bool, Error> {
    let call = client.call(Method::POST, "/limiter/check").body(&json!({"key_values": {"caller": caller}}));
    Ok(call.without_key().send::<CheckReply>().await?.allowed)
}

/// Checks per second of callers that each wait for their answer before they ask again.
async fn rate<F>(
    client: &Limina,
    check: impl Fn(Limina, u32) -> F + Copy + Send + 'static,
    time: Duration,
) -> Result<f64, Error>
where
    F: Future<Output = Result<bool, Error>> + Send,
{
    let started = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut checks = 0;
                while started.elapsed() < time {
                    assert!(check(client.clone(), caller).await?, "the limit of the benchmark is reached");
                    checks += 1;
                }
                Ok::<u32, Error>(checks)
            })
        })
        .collect();
    let mut checks = 0;
    for caller in callers {
        checks += caller.await.expect("a caller panicked")?;
    }
    Ok(f64::from(checks) / started.elapsed().as_secs_f64())
}

/// The median latencies with batching and without. They take turns, and each comes first in every other turn.
async fn latencies(client: &Limina, time: Duration) -> Result<(Duration, Duration), Error> {
    let (mut with_batching, mut without) = (Vec::new(), Vec::new());
    let started = Instant::now();
    while started.elapsed() < time || without.len() < 2 {
        let batched_first = without.len() % 2 == 0;
        for batch in [batched_first, !batched_first] {
            let before = Instant::now();
            if batch {
                batched(client.clone(), 0).await?;
                with_batching.push(before.elapsed());
            } else {
                single(client.clone(), 0).await?;
                without.push(before.elapsed());
            }
        }
    }
    Ok((median(&mut with_batching), median(&mut without)))
}

fn median<T: PartialOrd + Copy>(values: &mut [T]) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("a measurement is a number"));
    values[values.len() / 2]
}
