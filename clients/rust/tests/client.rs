//! What the conformance scripts cannot say: guards that are dropped, JSON of replies, lists.

use crate::servers::{Server, closed_port};
use limina_client::{
    Done, Error, Limina, key_values,
    types::{DecisionPart, DecisionState, LimitOfRule, LimitReached, Message, RefusedDecision, SetOverrides},
};
use serde_json::{Value, json};
use std::{future::IntoFuture, time::Duration};

const TTL: Duration = Duration::from_secs(60);

/// Repeats a question until the answer is yes.
macro_rules! eventually {
    ($question:expr) => {
        while !$question {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
}

#[tokio::test]
async fn a_guard_that_is_dropped_releases_in_the_background() {
    let Some(server) = Server::start() else { return };
    let client = Limina::new(&server.url).unwrap();
    client.rules().create(&json!({"name": "gpus", "group_by": ["gpu"], "limit": 1})).await.unwrap();
    let lock = client.lock([("job", "x")], TTL).await.unwrap();
    let lease = client.lease([("gpu", "g")], TTL).owner("me").await.unwrap();
    assert!(!lock.is_lost() && lock.remaining() <= TTL);
    assert_eq!(lease.limits[0].used, 1);
    assert_eq!(client.leases().list().filter("owner", "me").all().await.unwrap().len(), 1);
    drop((lock, lease));
    eventually!(client.locks().list().all().await.unwrap().is_empty());
    eventually!(client.leases().list().all().await.unwrap().is_empty());
}

#[tokio::test]
async fn work_learns_that_its_lock_is_lost() {
    let Some(server) = Server::start() else { return };
    let client = Limina::new(&server.url).unwrap();
    let lock = client.lock([("job", "x")], Duration::from_millis(300)).await.unwrap();
    let lost = lock.lost().clone();
    client.locks().force_release(&lock.lock_id).await.unwrap();
    lost.cancelled().await;
    assert!(lock.is_lost() && lock.remaining().is_zero());
}

#[tokio::test]
async fn a_reply_has_the_json_of_the_server() {
    let Some(server) = Server::start() else { return };
    let client = Limina::new(&server.url).unwrap();
    client.rules().create(&json!({"name": "r", "group_by": ["a"], "limit": 1})).await.unwrap();
    let reply = client.check(key_values! {"a": "x", "n": 1, "f": 0.5, "b": true}).await.unwrap();
    let json: Value = serde_json::from_str(reply.json()).unwrap();
    assert_eq!(json["limits"][0]["group"], json!({"a": "x"}));
    assert!(reply.allowed && reply.limits[0].rule.as_deref() == Some("r"));
    let refused = client.check([("a", "x")]).await.unwrap();
    assert!(!refused.allowed && refused.json().contains("LimitReached"));
    let matching = client.rules().matching([("a", "x")]).await.unwrap();
    assert_eq!(matching.rules[0].rule.name, "r");
    let rule = client.rules().get("r").await.unwrap().into_inner();
    client.rules().put("r", &rule).await.unwrap();
}

#[tokio::test]
async fn lists_are_read_page_by_page() {
    let Some(server) = Server::start() else { return };
    let client = Limina::new(&server.url).unwrap().with_namespace("n/s ü");
    for name in ["a", "b/c", "d?"] {
        client.ledger().hold(name).change(name, 1).create_missing().await.unwrap();
    }
    let mut pages = client.ledger().limits().list().page_size(2);
    assert_eq!(pages.next_page().await.unwrap().unwrap().items.len(), 2);
    let names: Vec<_> = pages.all().await.unwrap().into_iter().map(|limit| limit.name).collect();
    assert_eq!(names, ["d?"]);
    assert_eq!(client.ledger().limits().get("b/c").await.unwrap().hold_value, 1);
    assert_eq!(client.ledger().operation("d?").await.unwrap().holds.len(), 1);
    client.ledger().commit("a").await.unwrap();
    assert_eq!(client.ledger().values(&["a"]).await.unwrap().values[0].commit_value, 1);
    assert_eq!(client.ledger().limits().entries("a").all().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_stream_is_followed() {
    let Some(server) = Server::start() else { return };
    let client = Limina::new(&server.url).unwrap();
    client.events().put("s", &json!({"mode": "only_once", "duration": "1d"})).await.unwrap();
    let mut follow = client.events().follow("s");
    assert!(matches!(*follow.next().await.unwrap(), Message::KeyFrame { .. }));
    let submitted = client.events().submit("s", "🌮").await.unwrap();
    loop {
        if let Message::Submitted { clock, event_time } = &*follow.next().await.unwrap() {
            assert_eq!((*clock, &*event_time.event), (submitted.clock, "🌮"));
            break;
        }
    }
    assert_eq!(client.events().incubating("s").await.unwrap().events.len(), 1);
}

#[tokio::test]
async fn what_operators_ask_for_is_typed() {
    let Some(server) = Server::start() else { return };
    let client = Limina::new(&server.url).unwrap().with_namespace("shop");
    let set = json!({"rules": [{"name": "gpus", "group_by": ["gpu"], "limit": 1}], "overrides": "open"});
    assert_eq!(client.rule_sets().diff("s", &set).await.unwrap().created, ["gpus"]);
    client.rule_sets().put("s", &set).await.unwrap();
    let stored = client.rule_sets().get("s").await.unwrap().into_inner();
    assert_eq!((stored.rules[0].limit, stored.overrides), (LimitOfRule::AtMost(1), SetOverrides::Open));
    assert!(client.rule_sets().put("s", &stored).await.unwrap().changed.is_empty());
    assert_eq!(client.rule_sets().list().all().await.unwrap()[0].rules, 1);

    let gpu = [("gpu", "g")];
    let decision = client.decide().operation_id("first").owner("me").take(gpu, 1).await.unwrap();
    assert_eq!(decision.state, DecisionState::Open);
    assert_eq!(client.rules().groups("gpus", 10).await.unwrap().items[0].used, 1);
    assert_eq!(
        client.decisions().list().filter("state", "open").all().await.unwrap()[0].operation_id,
        "first"
    );
    let second = client.decide().check(gpu).hold_new("budget", 2, 1).explain().await;
    let Err(Error::Refused(failure)) = second else { panic!("the second decision is made") };
    let refused = failure.document::<RefusedDecision>().expect("a refused decision");
    assert_eq!(refused.refused_by, [DecisionPart::Limits, DecisionPart::Holds]);
    assert_eq!(refused.limits[0].held_by.as_ref().unwrap()[0].owner.as_deref(), Some("me"));
    let Err(Error::Refused(failure)) = client.lease(gpu, TTL).await else { panic!("the lease is granted") };
    assert!(!failure.document::<LimitReached>().expect("a reached limit").allowed);

    let refusal = client.refusals().next().await.unwrap();
    assert_eq!((&*refusal.family, &*refusal.namespace), ("decisions", "shop"));
    assert_eq!(client.server().refusals().next().await.unwrap().time, refusal.time);
    assert_eq!(client.audit().all().await.unwrap()[0].target, "s");
    assert!(!client.server().audit().all().await.unwrap().is_empty());
    assert_eq!(client.namespaces().all().await.unwrap()[0].namespace, "shop");
    client.server().ready().await.unwrap();
    assert_eq!(client.server().cluster().await.unwrap().shards.len(), 4);
    assert_eq!(client.server().cluster_of(client.namespace()).await.unwrap().shards.len(), 1);
    assert!(client.server().metrics().await.unwrap().contains("limina_"));
    decision.rollback().await.unwrap();
    assert_eq!(client.decisions().get("first").await.unwrap().state, DecisionState::RolledBack);
}

#[tokio::test]
async fn a_time_without_end_does_not_overflow() {
    let Some(server) = Server::start() else { return };
    let client = Limina::builder(&server.url).timeout(Duration::MAX).build().unwrap();
    assert!(client.with_timeout(Duration::MAX).check([("a", "x")]).await.unwrap().allowed);
    assert!(client.wait([("a", "x")], Duration::MAX).await.unwrap().allowed);
    assert!(
        client.lock([("a", "x")], TTL).wait(Duration::MAX).await.is_err(),
        "the server waits for 5 minutes at most"
    );
}

#[tokio::test]
async fn a_name_that_would_lead_to_another_path_is_not_sent() {
    let client = Limina::new(closed_port()).unwrap();
    for name in ["", ".", ".."] {
        assert!(matches!(client.rules().get(name).await, Err(Error::Invalid(_))), "{name:?}");
    }
    assert!(Limina::new("not a URL").is_err());
}

#[test]
fn a_url_that_would_show_a_password_is_refused_and_not_shown() {
    for url in [
        "http://ann:SECRET@127.0.0.1:1",
        "http://SECRET@127.0.0.1:1",
        "http://SECRET@[::1",
        "ftp://ann:SECRET@a",
    ] {
        let error = Limina::new(url).err().unwrap();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert!(!format!("{error:?}").contains("SECRET"), "{error:?}");
    }
}

#[test]
fn a_token_that_no_header_can_have_is_refused_and_not_shown() {
    for token in ["SECRET\nx", "SECRET\0", "SECRET\x7f", "SECRETü", "SECRET€"] {
        let error = Limina::builder(closed_port()).token(token).build().err().unwrap();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
        assert!(!format!("{error:?}").contains("SECRET"), "{error:?}");
    }
    assert!(Limina::builder(closed_port()).token(" \n").build().is_ok());
}

/// A call that is alone is sent by its caller's task. If that task ends, the calls that wait behind it are sent.
#[tokio::test]
async fn a_caller_that_gives_up_does_not_hold_others_back() {
    let (asked, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let first_is_never_answered = async move |body: String| {
        let body: Value = serde_json::from_str(&body).unwrap();
        asked.send(body.clone()).unwrap();
        if body["key_values"] == json!({"n": "1"}) {
            std::future::pending::<()>().await;
        }
        let reply = json!({"status": 200, "allowed": true, "limits": [], "retry_after_ms": null});
        let replies = body["checks"].as_array().map(|checks| json!({"results": vec![&reply; checks.len()]}));
        ([("content-type", "application/json")], replies.unwrap_or(reply).to_string())
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = axum::Router::new().fallback(first_is_never_answered);
    tokio::spawn(async { axum::serve(listener, router).await });

    let client = Limina::builder(url).timeout(TTL).build().unwrap();
    let first = tokio::spawn(client.check([("n", "1")]).into_future());
    assert_eq!(requests.recv().await.unwrap()["key_values"], json!({"n": "1"}));
    let others = ["2", "3"].map(|n| tokio::spawn(client.check([("n", n)]).into_future()));
    // On this runtime of one thread, the tasks of the others run before this one goes on.
    tokio::task::yield_now().await;
    first.abort();
    for other in others {
        assert!(other.await.unwrap().unwrap().allowed);
    }
    assert_eq!(requests.recv().await.unwrap()["checks"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_check_that_nobody_waits_for_does_not_delay_others() {
    let client = Limina::builder(closed_port()).retries(0).build().unwrap();
    drop(client.check([("n", "1")]).into_future());
    let error = client.check([("n", "2")]).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { done: Done::No, .. }), "{error}");
}

/// The first call is in flight, and its task is never run again. So nobody ends its request, and those who wait behind it have only their own time.
#[tokio::test]
async fn calls_that_wait_behind_a_call_that_nobody_polls_fail_in_time() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = Limina::builder(url).timeout(Duration::from_millis(100)).retries(0).build().unwrap();
    let mut first = client.check([("n", "1")]).into_future();
    let polled_once = tokio::time::timeout(Duration::ZERO, &mut first).await;
    assert!(polled_once.is_err(), "nobody answers");
    let elsewhere = client.clone();
    let elsewhere = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move { elsewhere.check([("n", "2")]).await.unwrap_err() })
    });
    // The second one begins to wait when the first watch is over.
    for n in ["3", "4"] {
        let error = client.check([("n", n)]).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { done: Done::No, .. }), "{error}");
    }
    let error = elsewhere.join().unwrap();
    assert!(matches!(error, Error::Unavailable { done: Done::No, .. }), "{error}");
    drop(first);
}
