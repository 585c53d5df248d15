//! What goes wrong if several limits are asked one after the other, each case beside the same as one decision:
//!
//! 1. *Both refuse.* Two requests each take what the other one needs, although one of them would have fitted.
//! 2. *A leak.* The process dies between two calls. The window stays spent, and the hold stays open.
//! 3. *Twice.* An answer is lost, and the retry takes again.
//! 4. *A promise too early.* The mail goes out, and then the payment is refused.
//!
//! Run it with `cargo run -p limina-embed --example separate_calls`.

use limina_embed::{
    Error, Limina, Namespace,
    decisions::{Check, Decide, Refusal, State},
    events::{Mode, Stream},
    ledger::{Hold, NewLimit},
    limiter::{self, Limit, NewLease, Rule},
};
use std::time::Duration;

type Failed = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let limina = Limina::in_memory().await?;
    for line in run(&limina).await? {
        println!("{line}");
    }
    limina.close().await?;
    Ok(())
}

async fn run(limina: &Limina) -> Result<Vec<String>, Failed> {
    Ok(vec![
        both_refuse(&prepared(limina, "both-refuse").await?).await?,
        leak(&prepared(limina, "leak").await?).await?,
        twice(&prepared(limina, "twice").await?).await?,
        too_early(&prepared(limina, "too-early").await?).await?,
    ])
}

/// A place for one at a time, 10 requests a day, a budget of 100, and mails.
async fn prepared(limina: &Limina, name: &str) -> Result<Namespace, Failed> {
    let namespace = limina.namespace(name)?;
    let day = Duration::from_secs(24 * 3600);
    namespace.limiter().create_rule(Rule::new("place", Limit::AtMost(1)).group_by(["place"])).await?;
    let requests = Rule::new("requests", Limit::AtMost(10)).group_by(["requests"]).fixed_window(day);
    namespace.limiter().create_rule(requests).await?;
    namespace.ledger().create_limit(NewLimit::new("budget").ceiling(100)).await?;
    namespace.events().put_stream("mails", Stream::new(Mode::OnlyOnce, day)).await?;
    Ok(namespace)
}

/// The request as one decision: a request of the day, the place, and 100 of the budget.
fn together(id: &str) -> Decide {
    Decide::new(id)
        .check(Check::of([("requests", "acme")]).estimate("request"))
        .check(Check::of([("place", "one")]))
        .hold("budget", 100)
}

/// The requests of the day that are spent.
async fn spent(namespace: &Namespace) -> Result<u64, Failed> {
    let look = limiter::Check::of([("requests", "acme")]).hits(0);
    Ok(namespace.limiter().check(look).await?.limits[0].used)
}

/// Two requests need the place and the whole budget. The first asks for the place first, the second for the budget.
async fn both_refuse(namespace: &Namespace) -> Result<String, Failed> {
    let (limiter, ledger) = (namespace.limiter(), namespace.ledger());
    let place = limiter.take_lease(NewLease::of([("place", "one")])).await?;
    ledger.hold(Hold::new("second").change("budget", 100)).await?;
    let first = ledger.hold(Hold::new("first").change("budget", 100)).await.is_ok();
    let second = limiter.take_lease(NewLease::of([("place", "one")])).await.is_ok();
    limiter.release_lease(&place).await?;
    ledger.rollback("second").await?;
    let separate = usize::from(first) + usize::from(second);

    let mut decided = 0;
    for id in ["third", "fourth"] {
        decided += usize::from(namespace.decisions().decide(together(id)).await.is_ok());
    }
    Ok(format!(
        "1. Of two requests, of which one fits: {separate} passes by separate calls, {decided} by decisions."
    ))
}

/// The process dies after the hold. Here its leases have expired already: that is the part that separate calls get right.
async fn leak(namespace: &Namespace) -> Result<String, Failed> {
    namespace.limiter().check([("requests", "acme")]).await?;
    let place = namespace.limiter().take_lease(NewLease::of([("place", "one")])).await?;
    namespace.ledger().hold(Hold::new("dead").change("budget", 50)).await?;
    namespace.limiter().force_release_lease(place.lease.lease_id.as_str()).await?;
    let separate = (spent(namespace).await?, namespace.ledger().limit("budget").await?.hold_value);

    let half = Decide::new("dead too").ttl(Duration::from_millis(100)).hold("budget", 50);
    let half = half
        .check(Check::of([("requests", "acme")]).estimate("request"))
        .check(Check::of([("place", "one")]));
    namespace.decisions().decide(half).await?;
    while namespace.decisions().get("dead too").await?.state == State::Open {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let both = (spent(namespace).await?, namespace.ledger().limit("budget").await?.hold_value);
    let decided = (both.0 - separate.0, both.1 - separate.1);
    Ok(format!(
        "2. A process died after it had reserved. Spent requests and held money that stay: {separate:?} by separate calls, \
         {decided:?} by a decision."
    ))
}

/// The answer to the first attempt is lost, and the client asks again.
async fn twice(namespace: &Namespace) -> Result<String, Failed> {
    for _attempt in 0..2 {
        namespace.limiter().check([("requests", "acme")]).await?;
        // The hold has an id, so that it is not made twice: this refusal is the second attempt's.
        let _held = namespace.ledger().hold(Hold::new("retried").change("budget", 10)).await;
    }
    let separate = spent(namespace).await?;
    for _attempt in 0..2 {
        let once = Decide::new("retried too").check(Check::of([("requests", "acme")])).hold("budget", 10);
        namespace.decisions().decide(once).await?;
    }
    let decided = spent(namespace).await? - separate;
    Ok(format!(
        "3. One request, sent twice: {separate} are counted by separate calls, {decided} by decisions."
    ))
}

/// The mail is submitted before the budget is asked, because afterwards it may be too late.
async fn too_early(namespace: &Namespace) -> Result<String, Failed> {
    namespace.events().submit("mails", "your order is paid").await?;
    let refused = namespace.ledger().hold(Hold::new("order").change("budget", 101)).await.is_err();
    let separate = namespace.events().incubating("mails").await?.events.len();

    let order = Decide::new("order too").hold("budget", 101).event("mails", "your order is paid, too");
    let decided = match namespace.decisions().decide(order).await {
        Err(Error::Refused(Refusal::Refused(_))) => {
            namespace.events().incubating("mails").await?.events.len() - separate
        }
        other => return Err(format!("it should be refused: {other:?}").into()),
    };
    assert!(refused, "101 is more than 100");
    Ok(format!(
        "4. Mails of a payment that was refused: {separate} by separate calls, {decided} by a decision."
    ))
}

#[cfg(test)]
#[tokio::test]
async fn separate_calls_go_wrong_and_decisions_do_not() {
    let limina = Limina::in_memory().await.unwrap();
    assert_eq!(
        run(&limina).await.unwrap(),
        [
            "1. Of two requests, of which one fits: 0 passes by separate calls, 1 by decisions.",
            "2. A process died after it had reserved. Spent requests and held money that stay: (1, 50) by separate calls, \
             (0, 0) by a decision.",
            "3. One request, sent twice: 2 are counted by separate calls, 1 by decisions.",
            "4. Mails of a payment that was refused: 1 by separate calls, 0 by a decision.",
        ]
    );
}
