//! The calls of conformance scripts, by name. Scripts have the names of the wire, and durations in milliseconds.

use limina_client::{
    Done, Error, Guard, KeyValue, Keys, Limina, Method, Reply,
    types::{LeaseGrant, LockGrant},
};
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) enum Held {
    Lock(Guard<LockGrant>),
    Lease(Guard<LeaseGrant>),
    Decision(Box<limina_client::DecisionGuard>),
}

pub(crate) enum Outcome {
    Value(Value),
    Held(Box<Held>),
}

pub(crate) async fn call(client: &Limina, name: &str, with: Value) -> Result<Outcome, Error> {
    let text = |name: &str| with[name].as_str().unwrap_or_default();
    let without = |names: &[&str]| {
        let mut rest = with.as_object().cloned().unwrap_or_default();
        rest.retain(|name, _| !names.contains(&name.as_str()));
        Value::Object(rest)
    };
    let value = match name {
        // Negative hits cannot be written with this client, so they are sent past it.
        "check" if with["hits"].as_i64().is_some_and(|hits| hits < 0) => value(
            client.call(Method::POST, "/limiter/check").body(&with).without_key().send::<Value>().await?,
        ),
        "check" => {
            let mut check = client.check(key_values(&with["key_values"]));
            if let Some(hits) = with["hits"].as_u64() {
                check = check.hits(hits);
            }
            if with["require_match"] == true {
                check = check.require_match();
            }
            if let Some(key) = with["idempotency_key"].as_str() {
                check = check.idempotency_key(key);
            }
            value(check.await?)
        }
        "wait" => value(client.wait(key_values(&with["key_values"]), millis(&with["at_most_ms"])).await?),
        "counters" => {
            let counters = with["counters"].as_i64().unwrap();
            value(client.counters().add(key_values(&with["key_values"]), counters).await?)
        }
        "lock" => return lock(client, &with).await.map(|guard| Outcome::Held(Box::new(Held::Lock(guard)))),
        "lease" => {
            let mut lease = client.lease(key_values(&with["key_values"]), millis(&with["ttl_ms"]));
            if let Some(hits) = with["hits"].as_u64() {
                lease = lease.hits(hits);
            }
            if let Some(owner) = with["owner"].as_str() {
                lease = lease.owner(owner);
            }
            if with["wait_ms"].is_u64() {
                lease = lease.wait(millis(&with["wait_ms"]));
            }
            return lease.await.map(|guard| Outcome::Held(Box::new(Held::Lease(guard))));
        }
        "decide" => {
            let mut decide = client.decide().document(&without(&["operation_id", "ttl_ms", "wait_ms"]));
            if let Some(id) = with["operation_id"].as_str() {
                decide = decide.operation_id(id);
            }
            if with["ttl_ms"].is_u64() {
                decide = decide.ttl(millis(&with["ttl_ms"]));
            }
            if with["wait_ms"].is_u64() {
                decide = decide.wait(millis(&with["wait_ms"]));
            }
            return decide.await.map(|guard| Outcome::Held(Box::new(Held::Decision(Box::new(guard)))));
        }
        "ledger.hold" => value(client.ledger().hold(text("operation_id")).document(&with).await?),
        "ledger.commit" => value(client.ledger().commit(text("operation_id")).document(&with).await?),
        "ledger.rollback" => value(client.ledger().rollback(text("operation_id")).document(&with).await?),
        "ledger.values" => {
            let names: Vec<_> =
                with["limit_names"].as_array().unwrap().iter().flat_map(Value::as_str).collect();
            value(match with["operation_id"].as_str() {
                Some(id) => client.ledger().values_of(id, &names).await?,
                None => client.ledger().values(&names).await?,
            })
        }
        "rules.create" => value(client.rules().create(&with).await?),
        "rules.put" => value(client.rules().put(text("name"), &without(&["name"])).await?),
        "rules.patch" => value(client.rules().patch(text("name"), &without(&["name"])).await?),
        "rules.get" => value(client.rules().get(text("name")).await?),
        "rules.delete" => {
            client.rules().delete(text("name")).await?;
            json!({})
        }
        "rules.list" => json!({"items": client.rules().list().all().await?, "next": null}),
        "events.put" => value(client.events().put(text("stream"), &without(&["stream"])).await?),
        "events.submit" => value(client.events().submit(text("stream"), text("event")).await?),
        _ => panic!("the script has an unknown call {name}"),
    };
    Ok(Outcome::Value(value))
}

async fn lock(client: &Limina, with: &Value) -> Result<Guard<LockGrant>, Error> {
    let locks = with["locks"].as_array().cloned().unwrap_or_else(|| vec![with.clone()]);
    let mut request = None;
    for wanted in &locks {
        let (key_values, shared) = (key_values(&wanted["key_values"]), wanted["mode"] == "shared");
        request = Some(match request {
            None if shared => client.lock(key_values, millis(&with["ttl_ms"])).shared(),
            None => client.lock(key_values, millis(&with["ttl_ms"])),
            Some(request) if shared => limina_client::Lock::and_shared(request, key_values),
            Some(request) => request.and(key_values),
        });
    }
    let mut request = request.unwrap();
    if let Some(owner) = with["owner"].as_str() {
        request = request.owner(owner);
    }
    if with["wait_ms"].is_u64() {
        request = request.wait(millis(&with["wait_ms"]));
    }
    request.await
}

pub(crate) async fn act(guard: Held, action: &str, with: &Value) -> (Result<(), Error>, Option<Held>) {
    match (action, guard) {
        ("release", Held::Lock(guard)) => (guard.release().await, None),
        ("release", Held::Lease(guard)) => (guard.release().await, None),
        ("rollback" | "release", Held::Decision(guard)) => (guard.rollback().await, None),
        ("leave", Held::Lock(guard)) => {
            guard.leave().await;
            (Ok(()), None)
        }
        ("leave", Held::Lease(guard)) => {
            guard.leave().await;
            (Ok(()), None)
        }
        ("leave", Held::Decision(guard)) => {
            guard.leave().await;
            (Ok(()), None)
        }
        ("commit", Held::Decision(guard)) => {
            let result = guard.commit().document(with).await.map(drop);
            (result, Some(Held::Decision(guard)))
        }
        _ => panic!("the script has an unknown action {action}"),
    }
}

pub(crate) fn describe(guard: &Held) -> Value {
    fn state<G>(guard: &Guard<G>) -> Value {
        let grant: Value = serde_json::from_str(guard.grant().json()).unwrap();
        json!({
            "lost": guard.is_lost(),
            "remaining_ms": u64::try_from(guard.remaining().as_millis()).unwrap(),
            "fencing_token": guard.fencing_token(),
            "limits": grant["limits"],
        })
    }
    match guard {
        Held::Lock(guard) => state(guard),
        Held::Lease(guard) => state(guard),
        Held::Decision(guard) => state(guard),
    }
}

pub(crate) fn describe_error(error: &Error) -> Value {
    let failure = error.failure();
    let done = match error {
        Error::Unavailable { done: Done::No, .. } => Some("no"),
        Error::Unavailable { done: Done::Unknown, .. } => Some("unknown"),
        _ => None,
    };
    let retry_after = failure.retry_after.map(|after| u64::try_from(after.as_millis()).unwrap());
    json!({"error": {
        "kind": error.kind(), "code": error.code(), "status": failure.status, "done": done, "field": failure.field(),
        "needs": failure.needs(), "retry_after_ms": retry_after, "message": error.to_string(),
    }})
}

/// The reply as its type writes it, so that the types are tested too.
fn value<T: serde::Serialize>(reply: Reply<T>) -> Value {
    serde_json::to_value(reply.into_inner()).unwrap()
}

fn millis(value: &Value) -> Duration {
    Duration::from_millis(value.as_u64().unwrap())
}

fn key_values(value: &Value) -> Keys {
    let value_of = |value: &Value| match value {
        Value::String(text) => KeyValue::from(text.clone()),
        Value::Bool(flag) => KeyValue::from(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(number) => KeyValue::from(number),
            None => KeyValue::from(number.as_f64().unwrap()),
        },
        _ => panic!("{value} is not a value"),
    };
    value.as_object().unwrap().iter().map(|(key, value)| (key.clone(), value_of(value))).collect()
}
