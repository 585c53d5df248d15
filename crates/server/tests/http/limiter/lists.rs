//! Lists that the engine gives in parts.

use super::*;

#[tokio::test]
async fn parts_are_put_together_to_a_page() {
    let server = start().await;
    let part = |names: &[&str], next: Option<&str>| {
        let items = names.iter().map(|text| rule(text)).collect();
        Outcome::Limiter(Ok(LimiterReply::Rules(Listed { items, next: next.map(name) })))
    };
    let check = async |parts: Vec<Outcome>, path: &str, names: &[&str], next: Json| {
        server.fake.asked.lock().unwrap().clear();
        *server.fake.script.lock().unwrap() = parts.into();
        let page: Json = server.send("GET", path, "").await.json().await.unwrap();
        let found: Vec<&str> =
            page["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
        assert_eq!((found.as_slice(), &page["next"]), (names, &next), "{path}");
        assert!(server.fake.script.lock().unwrap().is_empty(), "not all parts were asked for");
        let asked = server.fake.asked.lock().unwrap();
        let pages = asked.iter().map(|request| match &request.command {
            Command::Limiter(LimiterCommand::ListRules { page, .. }) => {
                (page.after.as_ref().map(|after| after.as_str().to_owned()), page.limit())
            }
            other => panic!("{other:?}"),
        });
        pages.collect::<Vec<_>>()
    };
    let after = |text: &str| Some(text.to_owned());
    let pages = check(vec![part(&["a"], None)], "/v1/limiter/rules", &["a"], Json::Null).await;
    assert_eq!(pages, [(None, 100)]);
    let parts = vec![part(&["a"], Some("f")), part(&[], Some("k")), part(&["l", "m"], None)];
    let pages = check(parts, "/v1/limiter/rules?limit=5", &["a", "l", "m"], Json::Null).await;
    assert_eq!(pages, [(None, 5), (after("f"), 4), (after("k"), 4)]);
    let parts = vec![part(&[], Some("k")), part(&["l", "m"], Some("m"))];
    let pages = check(parts, "/v1/limiter/rules?limit=2&after=b", &["l", "m"], json!("m")).await;
    assert_eq!(pages, [(after("b"), 2), (after("k"), 2)]);
    // The last part may end the list just where the page is full.
    let parts = vec![part(&["l", "m"], None)];
    check(parts, "/v1/limiter/rules?limit=2", &["l", "m"], Json::Null).await;
    // A refusal on the way is the answer.
    let refusal = Outcome::Limiter(Err(Refused::RuleNotFound { rule: name("r") }));
    *server.fake.script.lock().unwrap() = vec![part(&["a"], Some("a")), refusal].into();
    problem_of(server.send("GET", "/v1/limiter/rules", "").await, 404, "RuleNotFound").await;
}

#[tokio::test]
async fn a_list_that_takes_long_is_answered_as_far_as_it_goes() {
    let server = start().await;
    let items = Vec::<Counter>::new();
    server.answers(done(LimiterReply::Counters(Listed { items, next: Some(CounterId(7)) })));
    let page: Json =
        server.send("POST", "/v1/limiter/counters/query?after=3", "").await.json().await.unwrap();
    assert_eq!(page, json!({"items": [], "next": "7"}));
    let asked = server.fake.asked.lock().unwrap();
    let LimiterCommand::ListCounters { page, .. } = (match &asked[0].command {
        Command::Limiter(command) => command,
        other => panic!("{other:?}"),
    }) else {
        panic!()
    };
    assert_eq!(*page, Page::new(Some(CounterId(3)), 100).unwrap());
    assert!(asked.len() > 1);
}

/// Groups are asked for part by part, and only those that use more than what is known already.
#[tokio::test]
async fn the_groups_that_use_the_most_come_from_several_parts() {
    let server = start().await;
    let part = |groups: &[(i64, u64)], next| {
        let items = groups.iter().map(|(key, used)| Group {
            group: key_values(&[("k", KeyValue::Integer(*key))]),
            ..group(*used)
        });
        Outcome::Limiter(Ok(LimiterReply::Groups(Listed { items: items.collect(), next })))
    };
    let parts = vec![part(&[(1, 3), (2, 9), (3, 5)], Some(GroupId(40))), part(&[(4, 7)], None)];
    *server.fake.script.lock().unwrap() = parts.into();
    let response = server.send("GET", "/v1/limiter/rules/r/groups?order=used&limit=3", "").await;
    let answer: Json = response.json().await.unwrap();
    let used: Vec<_> = answer["items"].as_array().unwrap().iter().map(|item| item["used"].clone()).collect();
    assert_eq!(used, [9, 7, 5]);
    assert_eq!((&answer["next"], &answer["complete"]), (&Json::Null, &json!(true)));
    let first = json!({"group": {"k": 2}, "override": null, "limit": 10, "used": 9, "remaining": 1,
        "reset_ms": 1500, "waiting": 0});
    assert_eq!(answer["items"][0], first);
    let LimiterCommand::ListGroups { rule, above, page } = server.last_limiter_command() else { panic!() };
    assert_eq!((rule, page), (name("r"), Page::new(Some(GroupId(40)), 3).unwrap()));
    assert_eq!(above.map(|above| above.used), Some(3));

    server.answers(Ok(Outcome::Limiter(Err(Refused::RuleNotFound { rule: name("r") }))));
    problem_of(server.send("GET", "/v1/limiter/rules/r/groups", "").await, 404, "RuleNotFound").await;
}
