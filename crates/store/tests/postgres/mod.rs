//! Tests that only apply to PostgreSQL: its schema, what waits for what, and lost connections.

mod clock;
mod encryption;
mod filters;
mod losses;
mod moving;
mod opening;
mod promotion;
mod records;
mod refusals;
mod waits;
mod went_back;

use crate::database;
use std::time::Duration;

/// Waits until the condition is true.
async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it never came to be so");
}
