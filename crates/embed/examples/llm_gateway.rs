//! A gateway in front of a language model. Before each call it reserves an estimate: tokens of the tenant's minute, a place
//! among the tenant's calls, and money of the tenant's month. After the call it settles what the model really used.
//!
//! Run it with `cargo run -p limina-embed --example llm_gateway`.

use limina_embed::{
    Error, Limina, Namespace,
    decisions::{Check, Commit, Decide, Refusal, RefusedHold},
    ledger::NewLimit,
    limiter::{Limit, Rule},
};
use std::time::Duration;

/// The price of 1,000 tokens, in cents.
const PRICE: i64 = 2;

/// What becomes of a call.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// The model answered, with this many tokens.
    Done { tokens: u64, cents: i64 },
    /// The model failed. The tenant pays nothing.
    Failed,
    /// The tenant has used its tokens of the minute, or has too many calls under way.
    TooManyRequests { rule: String, retry_after: Option<Duration> },
    /// The money of the month does not cover the estimate. This much is left.
    OutOfMoney { cents: i64 },
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
    let gateway = limina.namespace("gateway")?;
    let minute = Duration::from_secs(60);
    let limiter = gateway.limiter();
    limiter
        .put_rule(Rule::new("tokens", Limit::AtMost(10_000)).group_by(["tokens"]).sliding_window(minute))
        .await?;
    limiter.put_rule(Rule::new("calls", Limit::AtMost(2)).group_by(["calls"])).await?;

    let mut lines = Vec::new();
    for (request, max_tokens, model) in [
        ("req-1", 8_000, Ok(3_100)),
        // The first call took less than it reserved, so that this one fits into the minute.
        ("req-2", 6_000, Ok(5_900)),
        ("req-3", 1_000, Err("the model is down")),
        ("req-4", 4_000, Ok(4_000)),
        ("req-5", 1_000, Ok(1_000)),
        ("req-6", 0, Ok(0)),
    ] {
        let answer = call(&gateway, "acme", request, max_tokens, model).await?;
        lines.push(format!("{request} for {max_tokens} tokens: {answer:?}"));
    }
    let budget = gateway.ledger().limit("money/acme/2026-11").await?;
    lines.push(format!("spent {} of {} cents", budget.commit_value, budget.ceiling.unwrap_or_default()));
    Ok(lines)
}

/// One call of a tenant. `model` is what the model will do: its tokens, or its failure.
async fn call(
    gateway: &Namespace,
    tenant: &str,
    request: &str,
    max_tokens: u64,
    model: Result<u64, &str>,
) -> Result<Answer, Box<dyn std::error::Error>> {
    let decisions = gateway.decisions();
    let month = NewLimit::new(format!("money/{tenant}/2026-11")).ceiling(30);
    let reserve = Decide::new(request)
        .owner("gateway-1")
        // If this process dies, everything is free again after two minutes.
        .ttl(Duration::from_secs(120))
        .check(Check::of([("tokens", tenant)]).hits(max_tokens).estimate("tokens"))
        .check(Check::of([("calls", tenant)]))
        .hold_or_create(month.clone(), cents(max_tokens));
    match decisions.decide(reserve).await {
        Ok(_) => {}
        Err(Error::Refused(Refusal::Refused(refused))) => {
            if let Some(limit) = refused.limits.iter().find(|limit| limit.refuses) {
                let rule = limit.status.rule.as_ref().map(ToString::to_string).unwrap_or_default();
                let retry_after =
                    refused.retry_after.map(|after| Duration::from_secs(after.0.div_ceil(60_000) * 60));
                return Ok(Answer::TooManyRequests { rule, retry_after });
            }
            return match refused.holds.first().map(|hold| &hold.refused) {
                Some(RefusedHold::LimitExceeded(limit)) => Ok(Answer::OutOfMoney { cents: limit.available }),
                _ => Err("nothing else can refuse".into()),
            };
        }
        Err(error) => return Err(error.into()),
    }
    // The model is called here. The commit may be repeated: it returns its first answer.
    match model {
        Ok(tokens) => {
            let cents = cents(tokens);
            let actual =
                Commit::new(request).hits("tokens", tokens).value(format!("money/{tenant}/2026-11"), cents);
            decisions.commit(actual).await?;
            Ok(Answer::Done { tokens, cents })
        }
        Err(_) => {
            decisions.rollback(request).await?;
            Ok(Answer::Failed)
        }
    }
}

fn cents(tokens: u64) -> i64 {
    tokens.div_ceil(1_000) as i64 * PRICE
}

#[cfg(test)]
#[tokio::test]
async fn tokens_and_money_are_those_that_were_used() {
    let limina = Limina::in_memory().await.unwrap();
    let lines = run(&limina).await.unwrap();
    assert_eq!(
        lines,
        [
            "req-1 for 8000 tokens: Done { tokens: 3100, cents: 8 }",
            "req-2 for 6000 tokens: Done { tokens: 5900, cents: 12 }",
            "req-3 for 1000 tokens: Failed",
            "req-4 for 4000 tokens: TooManyRequests { rule: \"tokens\", retry_after: Some(60s) }",
            "req-5 for 1000 tokens: Done { tokens: 1000, cents: 2 }",
            "req-6 for 0 tokens: Done { tokens: 0, cents: 0 }",
            "spent 22 of 30 cents",
        ]
    );
    // Eight cents are left. A tenant without tokens of its own minute meets the budget instead.
    let gateway = limina.namespace("gateway").unwrap();
    gateway.limiter().delete_rule("tokens").await.unwrap();
    let answer = call(&gateway, "acme", "req-7", 5_000, Ok(1)).await.unwrap();
    assert_eq!(answer, Answer::OutOfMoney { cents: 8 });
}
