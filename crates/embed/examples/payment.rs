//! A payment passes five limits at once, and its confirmation is sent once: the day and the month of the card, the month of the
//! merchant, the volume that the provider accepts, and how often the card may be used in a minute.
//!
//! Run it with `cargo run -p limina-embed --example payment`.

use limina_embed::{
    Error, Failure, Limina, Namespace,
    decisions::{Check, Commit, Decide, Refusal, RefusedHold, State},
    events::{Message, Mode, Stream},
    ledger::NewLimit,
    limiter::{Limit, Rule},
};
use std::time::Duration;

/// The limits that a payment must fit into, with their ceilings.
const CEILINGS: [(&str, i64); 4] =
    [("card-1/day", 500), ("card-1/month", 1_000), ("merchant-7/month", 700), ("provider-3", 10_000)];

/// What becomes of a payment.
#[derive(Debug, PartialEq, Eq)]
enum Payment {
    /// The money has moved.
    Paid,
    /// The bank said no. Nothing counts, and nothing is sent.
    Declined,
    /// These refuse it.
    Refused(Vec<String>),
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limina = match std::env::args().nth(1) {
        Some(directory) => Limina::open(directory).await?,
        None => Limina::in_memory().await?,
    };
    for line in run(&limina).await? {
        println!("{line}");
    }
    limina.close().await?;
    Ok(())
}

async fn run(limina: &Limina) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let bank = limina.namespace("payments")?;
    let rate = Rule::new("uses", Limit::AtMost(3)).group_by(["card"]);
    bank.limiter().put_rule(rate.fixed_window(Duration::from_secs(24 * 3600))).await?;
    bank.events().put_stream("confirmations", Stream::new(Mode::OnlyOnce, Duration::from_millis(10))).await?;
    let mut confirmations = bank.events().follow("confirmations").await?;
    for (name, ceiling) in CEILINGS {
        bank.ledger().create_limit(NewLimit::new(name).ceiling(ceiling)).await?;
    }

    let mut lines = Vec::new();
    for (id, amount, bank_says) in [
        ("pay-1", 300, Some(300)),
        // A client that did not get its answer asks again. The card is charged once, and one mail is sent.
        ("pay-1", 300, Some(300)),
        ("pay-2", 150, None),
        // A hotel that reserves 200 and takes 180.
        ("pay-3", 200, Some(180)),
        ("pay-4", 300, Some(300)),
        ("pay-5", 10, Some(10)),
    ] {
        lines.push(format!("{id} of {amount}: {:?}", pay(&bank, id, amount, bank_says).await?));
    }
    for (name, ceiling) in CEILINGS {
        let value = bank.ledger().limit(name).await?;
        lines.push(format!("{name}: {} of {ceiling}", value.commit_value));
    }
    while lines.iter().filter(|line| line.starts_with("mail")).count() < 3 {
        match confirmations.next().await? {
            Message::Change(change) if change.kind == limina_embed::events::ChangeKind::Published => {
                lines.push(format!("mail: {}", change.event));
            }
            _ => {}
        }
    }
    Ok(lines)
}

/// Pays. `bank_says` is what the bank will do: the amount that it takes, or nothing.
async fn pay(
    payments: &Namespace,
    id: &str,
    amount: i64,
    bank_says: Option<i64>,
) -> Result<Payment, Box<dyn std::error::Error>> {
    let decisions = payments.decisions();
    let decide = CEILINGS.iter().fold(
        Decide::new(id)
            .check(Check::of([("card", "card-1")]).estimate("use"))
            .event("confirmations", format!("{id} is paid")),
        |decide, (limit, _)| decide.hold(*limit, amount),
    );
    loop {
        match decisions.decide(decide.clone()).await {
            Ok(_) => break,
            // An earlier attempt has finished it.
            Err(Error::Refused(Refusal::OperationAlreadyInFinalState { state, .. })) => {
                return Ok(if state == Some(State::Committed) { Payment::Paid } else { Payment::Declined });
            }
            Err(Error::Refused(Refusal::Refused(refused))) => {
                let limits = refused.limits.iter().filter(|limit| limit.refuses);
                let rules = limits.filter_map(|limit| limit.status.rule.as_ref().map(ToString::to_string));
                let holds = refused.holds.iter().map(|hold| match &hold.refused {
                    RefusedHold::LimitExceeded(limit) => {
                        format!("{} (left: {})", limit.limit_name, limit.available)
                    }
                    RefusedHold::ValueOverflow { limit_name, .. } => limit_name.to_string(),
                });
                return Ok(Payment::Refused(rules.chain(holds).collect()));
            }
            // Nobody knows whether it was done. The id finds it.
            Err(Error::Failed(Failure::OutcomeUnknown)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The bank is asked here.
    match bank_says {
        Some(taken) => {
            let commit =
                CEILINGS.iter().fold(Commit::new(id), |commit, (limit, _)| commit.value(*limit, taken));
            decisions.commit(commit).await?;
            Ok(Payment::Paid)
        }
        None => {
            decisions.rollback(id).await?;
            Ok(Payment::Declined)
        }
    }
}

#[cfg(test)]
#[tokio::test]
async fn five_limits_and_one_mail() {
    let limina = Limina::in_memory().await.unwrap();
    assert_eq!(
        run(&limina).await.unwrap(),
        [
            "pay-1 of 300: Paid",
            "pay-1 of 300: Paid",
            "pay-2 of 150: Declined",
            "pay-3 of 200: Paid",
            "pay-4 of 300: Refused([\"card-1/day (left: 20)\", \"merchant-7/month (left: 220)\"])",
            "pay-5 of 10: Paid",
            "card-1/day: 490 of 500",
            "card-1/month: 490 of 1000",
            "merchant-7/month: 490 of 700",
            "provider-3: 490 of 10000",
            "mail: pay-1 is paid",
            "mail: pay-3 is paid",
            "mail: pay-5 is paid",
        ]
    );
}
