//! Liminator's Thrift interface: headers, statuses and classes of errors. The bytes are tested beside their code.

use super::*;

const TRACE: [(&str, &str); 3] = [("woody.trace-id", "t"), ("woody.span-id", "s"), ("woody.parent-id", "p")];

/// A call of a function with a request that changes the limit `a` by 3.
fn call(function: &str) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
    let mut bytes = [&[0x80, 1, 0, 1][..], &text(function), &[0, 0, 0, 7]].concat();
    if function == "GetLastLimitsValues" {
        bytes.extend([&[15, 0xff, 0xff, 11, 0, 0, 0, 1][..], &text("a"), &[0]].concat());
        return bytes;
    }
    bytes.extend([&[12, 0xff, 0xff, 11, 0, 1][..], &text("op"), &[15, 0, 2, 12, 0, 0, 0, 1]].concat());
    bytes.extend([&[11, 0, 2][..], &text("a"), &[10, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0]].concat());
    bytes
}

impl Server {
    async fn thrift(&self, path: &str, body: Vec<u8>, headers: &[(&str, &str)]) -> Response {
        let mut request =
            self.request("POST", path).header("content-type", "application/x-thrift").body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }
}

fn header<'r>(response: &'r Response, name: &str) -> &'r str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn answers_have_the_status_and_the_headers_that_clients_know() {
    let server = start().await;
    let check = async |function: &str,
                       answer: Option<Result<Outcome, Unavailable>>,
                       status: u16,
                       class: &str,
                       reason: &str| {
        if let Some(answer) = answer {
            server.answers(answer);
        }
        let response = server.thrift("/liminator/v1", call(function), &TRACE).await;
        let found = (response.status().as_u16(), header(&response, "woody.error-class"));
        assert_eq!(found, (status, class), "{function} {reason}");
        assert_eq!(header(&response, "woody.error-reason"), reason, "{function}");
        for (name, value) in TRACE {
            assert_eq!(header(&response, name), value);
        }
        if status == 200 {
            assert_eq!(header(&response, "content-type"), "application/x-thrift");
        }
        response.bytes().await.unwrap()
    };
    let refused = |refusal| Some(Ok(Outcome::Ledger(Err(refusal))));
    let (op, a) = (|| name("op"), || name("a"));
    let hold = server.thrift("/v1/ns/shop/liminator/v1", call("Hold"), &TRACE).await;
    let bytes = hold.bytes().await.unwrap();
    assert!(
        bytes.starts_with(b"\x80\x01\x00\x02\x00\x00\x00\x04Hold\x00\x00\x00\x07\x0f\x00\x00"),
        "{bytes:?}"
    );
    let asked = server.last_asked();
    assert_eq!(asked.namespace.as_str(), "shop");
    let Command::Ledger(ledger::Command::Transfer(Transfer::Hold(held))) = asked.command else { panic!() };
    assert!(held.create_missing && held.skip_existing_holds);
    for function in ["Commit", "Rollback", "Get", "GetLastLimitsValues"] {
        check(function, None, 200, "", "").await;
    }
    let duplicate = || Refusal::DuplicateOperation { operation_id: op(), limits: vec![(a(), 3)] };
    let bytes = check("Hold", refused(duplicate()), 200, "Business Error", "DuplicateOperation").await;
    assert!(bytes.ends_with(b"\x0c\x00\x02\x00\x00"), "{bytes:?}");
    let missing = || Refusal::LimitNotFound { limit_names: vec![a()] };
    check("Get", refused(missing()), 200, "Business Error", "LimitNotFound").await;
    let exceeds = Refusal::CommitExceedsHold { operation_id: op(), limit_name: a(), held: 1, value: 3 };
    check("Commit", refused(exceeds), 200, "Business Error", "OperationNotFound").await;
    let overflow = Refusal::ValueOverflow { limit_names: vec![a()] };
    check("Hold", refused(overflow), 500, "Result Unexpected", "ValueOverflow").await;
    let unknown = || Refusal::OperationNotFound { operation_id: op(), limit_name: None, state: None };
    check("Rollback", refused(unknown()), 200, "Business Error", "OperationNotFound").await;
    check("Get", refused(unknown()), 500, "Result Unexpected", "OperationNotFound").await;
    let unreadable = Refusal::LimitsValuesReadingException;
    check("Get", refused(unreadable), 200, "Business Error", "LimitsValuesReadingException").await;
    let overloaded = Some(Err(Unavailable::Overloaded { retry_after_ms: 1 }));
    check("Hold", overloaded, 503, "Resource Unavailable", "Overloaded").await;
    check("Hold", Some(Ok(Outcome::Unreadable)), 503, "Resource Unavailable", "ShardUnavailable").await;
    check("Hold", Some(Err(Unavailable::OutcomeUnknown)), 504, "Result Unknown", "OutcomeUnknown").await;
}

#[tokio::test]
async fn what_is_no_call_is_refused_before_anything_is_asked() {
    let server = start().await;
    let check = async |body: Vec<u8>, headers: &[(&str, &str)], status: u16| {
        let response = server.thrift("/liminator/v1", body, headers).await;
        assert_eq!(response.status().as_u16(), status, "{headers:?}");
        assert_eq!(header(&response, "woody.error-class"), "Result Unexpected");
        server.nothing_asked();
    };
    check(b"junk".to_vec(), &TRACE, 400).await;
    check(Vec::new(), &TRACE, 400).await;
    check([call("Hold"), vec![0]].concat(), &TRACE, 400).await;
    check(call("Create"), &TRACE, 400).await;
    for missing in 0..3 {
        let others: Vec<_> = TRACE.into_iter().enumerate().filter(|(at, _)| *at != missing).collect();
        let others: Vec<_> = others.into_iter().map(|(_, header)| header).collect();
        check(call("Hold"), &others, 400).await;
    }
    check(vec![0; MIB + 1], &TRACE, 413).await;
    let compressed = [&TRACE[..], &[("content-encoding", "gzip")]].concat();
    check(call("Hold"), &compressed, 415).await;
    let request = server.request("POST", "/liminator/v1").header("content-type", "application/json");
    assert_eq!(request.body("{}").send().await.unwrap().status().as_u16(), 415);
    server.nothing_asked();
}

#[tokio::test]
async fn reading_needs_less_than_holding() {
    let reader = access::entry("reader", &["default/ledger:read"], "");
    let user = access::entry("user", &["default/ledger:use"], "");
    let (server, _) = access::protected(&[&reader, &user]).await;
    let check = async |token: Option<&access::Entry>, function: &str, status: u16| {
        let mut headers = TRACE.to_vec();
        let bearer = token.map(|entry| format!("Bearer {}", entry.secret.text()));
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        let response = server.thrift("/liminator/v1", call(function), &headers).await;
        assert_eq!(response.status().as_u16(), status, "{function}");
    };
    for function in ["Hold", "Commit", "Rollback"] {
        check(None, function, 401).await;
        check(Some(&reader), function, 403).await;
        check(Some(&user), function, 200).await;
    }
    for function in ["Get", "GetLastLimitsValues"] {
        check(None, function, 401).await;
        check(Some(&reader), function, 200).await;
    }
}
