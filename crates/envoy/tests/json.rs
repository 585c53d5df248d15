//! The JSON of `POST /json`: requests in protobuf's mapping, and the responses to them.

use limina_envoy::{
    messages::{Code, CurrentLimit, DescriptorStatus, Duration, RateLimitResponse, UnitCode},
    read_request, write_response,
};

#[test]
fn requests() {
    let text = r#"{"domain": "edge", "hitsAddend": 2, "descriptors": [{"entries": [{"key": "a", "value": "b"}],
        "limit": {"requestsPerUnit": 5, "unit": "MINUTE"}, "hitsAddend": "3", "isNegativeHits": true}]}"#;
    let request = read_request(text.as_bytes()).unwrap();
    assert_eq!((request.domain.as_str(), request.hits_addend), ("edge", 2));
    let descriptor = &request.descriptors[0];
    assert_eq!((descriptor.entries[0].key.as_str(), descriptor.entries[0].value.as_str()), ("a", "b"));
    let limit = descriptor.limit.unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit()), (5, UnitCode::Minute));
    assert_eq!((descriptor.hits_addend.unwrap().value, descriptor.is_negative_hits), (3, true));
    // The names of protobuf are read too.
    let same = text.replace("hitsAddend", "hits_addend").replace("requestsPerUnit", "requests_per_unit");
    assert_eq!(read_request(same.replace("isNegativeHits", "is_negative_hits").as_bytes()).unwrap(), request);

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let error = read_request(text.as_bytes()).expect_err("it is not valid");
        assert!(error.contains(expect), "{error}");
    }
    check("[]", "the request must be an object");
    check("{\"domain\": 5}", "must be a text");
    check("{\"domains\": \"a\"}", "\"domains\" is unknown");
    check("{\"hitsAddend\": 4294967296}", "less than 2^32");
    check("{\"descriptors\": [{\"limit\": {\"unit\": \"PARSEC\"}}]}", "is not a unit");
    check("{", "EOF");
}

#[test]
fn responses() {
    let limit = CurrentLimit { name: String::new(), requests_per_unit: 5, unit: UnitCode::Day.into() };
    let asked = DescriptorStatus {
        code: Code::OverLimit.into(),
        current_limit: Some(limit),
        limit_remaining: 0,
        duration_until_reset: Some(Duration { seconds: 7, nanos: 0 }),
    };
    let free = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
    let statuses = vec![asked, free];
    let response =
        RateLimitResponse { overall_code: Code::OverLimit.into(), statuses, dynamic_metadata: None };
    let expect = r#"{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","currentLimit":{"requestsPerUnit":5,"unit":"DAY"},"durationUntilReset":"7s"},{"code":"OK"}]}"#;
    assert_eq!(write_response(&response), expect);
}
