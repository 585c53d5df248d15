//! A small shop that uses all four families: the limiter slows customers down, a lock protects the stock, the ledger keeps
//! within the daily budget, and a confirmation is sent once.
//!
//! Run it with `cargo run -p limina-embed --example shop`, or with a directory as its argument to keep the data.

use limina_embed::{
    Error, Failure, Limina, Name, Namespace,
    events::{self, Message, Mode, Stream},
    ledger::{self, Hold, NewLimit},
    limiter::{self, Limit, Rule},
    locks::{Acquire, Lock},
};
use std::time::Duration;

/// What becomes of an order.
#[derive(Debug, PartialEq, Eq)]
enum Checkout {
    /// The order is paid for.
    Done,
    /// The customer ordered too often. Retry after this time.
    TooFast(Option<Duration>),
    /// The order would exceed the budget of the day.
    OverBudget,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limina = match std::env::args().nth(1) {
        Some(directory) => Limina::open(directory).await?,
        None => Limina::in_memory().await?,
    };
    run(&limina).await?;
    limina.close().await?;
    Ok(())
}

async fn run(limina: &Limina) -> Result<(), Box<dyn std::error::Error>> {
    let shop = limina.namespace("shop")?;
    set_up(&shop).await?;
    let mut confirmations = shop.events().follow("confirmations").await?;

    for (order, customer, amount) in
        [("order-1", "ann", 300), ("order-2", "bob", 900), ("order-3", "ann", 200), ("order-4", "ann", 100)]
    {
        println!(
            "{order} of {customer} for {amount}: {:?}",
            check_out(&shop, order, customer, amount).await?
        );
    }

    let budget = shop.ledger().limit("budget").await?;
    println!("spent {} of {:?}", budget.commit_value, budget.ceiling);
    for _ in 0..3 {
        match confirmations.next().await? {
            Message::KeyFrame(frame) => println!("{} confirmations were on their way", frame.events.len()),
            Message::Change(change) => println!("confirmation {:?}: {}", change.kind, change.event),
        }
    }
    Ok(())
}

/// Rules and streams are put, and a limit that exists already is left alone, so a shop may be set up again.
async fn set_up(shop: &Namespace) -> Result<(), Box<dyn std::error::Error>> {
    let orders = Rule::new("orders", Limit::AtMost(2)).group_by(["customer"]);
    shop.limiter().put_rule(orders.fixed_window(Duration::from_secs(24 * 3600))).await?;

    shop.events().put_stream("confirmations", Stream::new(Mode::OnlyOnce, Duration::from_secs(3600))).await?;

    match shop.ledger().create_limit(NewLimit::new("budget").ceiling(1_000)).await {
        Ok(_) | Err(Error::Refused(ledger::Refusal::DuplicateLimitName { .. })) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn check_out(
    shop: &Namespace,
    order: &str,
    customer: &str,
    amount: i64,
) -> Result<Checkout, Box<dyn std::error::Error>> {
    // A refusal is a decision that this program handles; every other error goes to the caller.
    match shop.limiter().check([("customer", customer)]).await {
        Ok(_) => {}
        Err(Error::Refused(limiter::Refusal::LimitReached(decision))) => {
            let after = decision.retry_after.map(|millis| Duration::from_millis(millis.0));
            return Ok(Checkout::TooFast(after));
        }
        Err(error) => return Err(error.into()),
    }

    // The stock is counted somewhere else; one order at a time touches it.
    let stock = Acquire::new(vec![Lock::exclusive([("stock", "chairs")])?], Duration::from_secs(30))?;
    let stock = stock.with_wait(Duration::from_secs(5))?.with_owner(Some(Name::new(order)?));
    let held = shop.locks().acquire(stock).await?;
    let done = pay(shop, order, amount).await;
    shop.locks().release(&held).await?;
    let done = done?;

    if done == Checkout::Done {
        match shop.events().submit("confirmations", order).await {
            // A duplicate: the confirmation was sent by an earlier attempt.
            Ok(_) | Err(Error::Refused(events::Refusal::EventConflict { .. })) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

async fn pay(shop: &Namespace, order: &str, amount: i64) -> Result<Checkout, Error<ledger::Refusal>> {
    let ledger = shop.ledger();
    // If this process stops before the commit, the amount is free again after 15 minutes.
    let hold = Hold::new(order).change("budget", amount).expires_after(Duration::from_secs(900));
    match ledger.hold(hold).await {
        Ok(_) => {}
        Err(Error::Refused(ledger::Refusal::LimitExceeded { .. })) => return Ok(Checkout::OverBudget),
        Err(error) => return Err(error),
    }
    // The payment itself would happen here. A commit may be repeated under the same operation id.
    loop {
        match ledger.commit(order).await {
            Ok(_) => return Ok(Checkout::Done),
            Err(Error::Failed(Failure::OutcomeUnknown)) => continue,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
#[tokio::test]
async fn the_budget_and_the_limiter_decide() {
    let limina = Limina::in_memory().await.unwrap();
    run(&limina).await.unwrap();
    let shop = limina.namespace("shop").unwrap();
    assert_eq!(shop.ledger().limit("budget").await.unwrap().commit_value, 500);
    let again = check_out(&shop, "order-5", "ann", 1).await.unwrap();
    assert!(matches!(again, Checkout::TooFast(Some(_))), "{again:?}");
    assert_eq!(check_out(&shop, "order-6", "eve", 501).await.unwrap(), Checkout::OverBudget);
}
