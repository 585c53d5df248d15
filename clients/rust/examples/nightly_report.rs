//! A job that must run once at a time, on a machine that has few slots: a lock keeps other runs out, and a lease takes a slot.
//!
//! ```console
//! $ LIMINA_URL=http://localhost:7070 cargo run -p limina-client --example nightly_report
//! ```

use limina_client::{Error, Limina};
use serde_json::json;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::var("LIMINA_URL").unwrap_or_else(|_| "http://localhost:7070".to_owned());
    let client = Limina::builder(url).namespace("reports").build()?;
    // At most two jobs use the database at a time.
    client.rules().put("database-jobs", &json!({"group_by": ["database"], "limit": 2})).await?;

    let lock = match client.lock([("report", "nightly")], TTL).owner("nightly_report").await {
        Ok(lock) => lock,
        Err(Error::Refused(_)) => {
            println!("another run has the lock");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let slot = client.lease([("database", "main")], TTL).await?;
    println!("running with fencing token {}", lock.fencing_token());
    tokio::select! {
        () = write_report(lock.fencing_token()) => println!("done"),
        // The work stops here, in the middle: another run may have begun.
        () = lock.lost().cancelled() => println!("the lock is lost"),
    }
    // Dropping the guards would release them too, in the background, which a program that ends at once does not wait for.
    slot.leave().await;
    lock.leave().await;
    Ok(())
}

/// The storage rejects a fencing token that is smaller than one it has seen.
async fn write_report(_fencing_token: u64) {
    tokio::time::sleep(Duration::from_millis(200)).await;
}
