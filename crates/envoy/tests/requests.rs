//! Which limits a request has, and the response to each decision of the limiter.

use limina_engine::limiter::{AppliedLimit, Checked, EntryMode, Limit, LimitStatus};
use limina_envoy::{
    Config, CountRefused, Plan, load,
    messages::{
        Code, Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, RateLimitResponse,
        UInt64Value, UnitCode,
    },
};

const CONFIG: &str = "
domain: edge
descriptors:
  - key: path
    value: /login
    rate_limit: {unit: minute, requests_per_unit: 2, name: login, replaces: [{name: all}]}
  - key: path
    value: /files/*
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: path
    value: '*.png'
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 4}
  - key: path
    rate_limit: {unit: minute, requests_per_unit: 5, name: all}
    descriptors:
      - key: user
        rate_limit: {unit: week, requests_per_unit: 6}
      - key: user
        value: root
        rate_limit: {unlimited: true, replaces: [{name: all}]}
      - key: user
        value: nobody
  - key: backend_name
    quota_mode: true
    rate_limit: {unit: month, requests_per_unit: 7}
    metadata: {cluster: {name: warm}}
";

fn config() -> Config {
    load([("limits.yaml", CONFIG)]).expect("a valid configuration")
}

/// A descriptor: `key=value/key=value`, then options behind spaces.
fn descriptor(text: &str) -> RateLimitDescriptor {
    let mut words = text.split(' ');
    let entries = words.next().unwrap().split('|').filter_map(|pair| pair.split_once('='));
    let entries = entries.map(|(key, value)| Entry { key: key.into(), value: value.into() }).collect();
    let mut descriptor = RateLimitDescriptor { entries, ..RateLimitDescriptor::default() };
    for word in words {
        match word.split_once(':') {
            Some(("hits", hits)) => {
                descriptor.hits_addend = Some(UInt64Value { value: hits.parse().unwrap() })
            }
            Some(("limit", limit)) => {
                let requests_per_unit = limit.parse().unwrap();
                descriptor.limit = Some(RateLimitOverride { requests_per_unit, unit: UnitCode::Hour.into() });
            }
            _ => descriptor.is_negative_hits = true,
        }
    }
    descriptor
}

fn request(domain: &str, descriptors: &[&str]) -> RateLimitRequest {
    let descriptors = descriptors.iter().map(|text| descriptor(text)).collect();
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}

/// The command for the limiter, one word for each entry: mode, hits, alternative, key-values.
fn asked(
    config: &Config,
    request: &RateLimitRequest,
    count_refused: CountRefused,
) -> Result<Vec<String>, String> {
    let mut plan = Plan::new(config.domain(&request.domain), request, count_refused)
        .map_err(|error| error.to_string())?;
    let Some(set) = plan.command().map_err(|error| error.to_string())? else { return Ok(Vec::new()) };
    let show = |(place, take): (usize, &limina_engine::limiter::Take)| {
        let mode = match set.mode(place) {
            EntryMode::Take => "take",
            EntryMode::Look => "look",
            EntryMode::Report => "report",
        };
        let alternative = set.alternative(place).map_or(String::new(), |number| format!(" or {number}"));
        let given = take
            .limit()
            .map_or(String::new(), |limit| format!(" limit {} per {}", limit.limit(), limit.per().0));
        format!("{mode} {}{alternative}{given} {:?}", take.hits(), take.key_values())
    };
    Ok(set.entries().iter().enumerate().map(show).collect())
}

#[track_caller]
fn check(descriptors: &[&str], expect: &[&str]) {
    let found = asked(&config(), &request("edge", descriptors), CountRefused::Explicit);
    assert_eq!(found.unwrap(), expect, "{descriptors:?}");
}

#[test]
fn descriptors_find_their_limits() {
    // The exact value, wildcards in the order of the file, the key alone.
    check(&["path=/login"], &[r#"take 1 {"rls": "path=%2Flogin"}"#]);
    check(&["path=/files/a.png"], &[r#"take 1 {"0:path": "/files/a.png", "rls": "path=%2Ffiles%2F*"}"#]);
    check(&["path=/a.png"], &[r#"take 1 {"rls": "path=*.png"}"#]);
    check(&["path=/other"], &[r#"take 1 {"0:path": "/other", "rls": "path"}"#]);
    check(&["path="], &[r#"take 1 {"0:path": "", "rls": "path"}"#]);
    // A limit applies only where it stands, and a choice is not taken back.
    check(
        &["path=/other|user=ann"],
        &[r#"take 1 {"0:path": "/other", "1:user": "ann", "rls": "path/user"}"#],
    );
    check(&["path=/login|user=ann"], &[]);
    check(&["path=/other|user=nobody"], &[]);
    check(&["path=/other|user=ann|more=1"], &[]);
    check(&["user=ann"], &[]);
    check(&[""], &[]);
}

#[test]
fn replaced_limits_are_not_asked() {
    let login = r#"take 1 {"rls": "path=%2Flogin"}"#;
    check(&["path=/other", "path=/login"], &[login]);
    // An unlimited one replaces too.
    check(&["path=/other", "path=/other|user=root"], &[]);
}

#[test]
fn hits_say_how_a_descriptor_takes_part() {
    let (root, at) = (r#"{"0:path": "/x", "rls": "path"}"#, "path=/x");
    check(&[&format!("{at} hits:0")], &[&format!("look 0 {root}")]);
    check(&[&format!("{at} hits:3")], &[&format!("report 3 {root}")]);
    check(&[&format!("{at} hits:3 back")], &[&format!("report -3 {root}")]);
    check(&[&format!("{at} back")], &[&format!("report -1 {root}")]);
    check(&[&format!("{at} limit:9")], &[r#"take 1 limit 9 per 3600000 {"0:path": "/x"}"#]);
    let modes = |count_refused, text: &str| {
        let mut request = request("edge", &[text]);
        request.hits_addend = 4;
        asked(&config(), &request, count_refused).unwrap().remove(0)
    };
    assert_eq!(modes(CountRefused::Always, at), format!("report 4 {root}"));
    assert_eq!(modes(CountRefused::Never, at), format!("take 4 {root}"));
    assert_eq!(modes(CountRefused::Never, "path=/x hits:3"), format!("take 3 {root}"));
    assert_eq!(modes(CountRefused::Never, "path=/x hits:3 back"), format!("report -3 {root}"));
}

#[test]
fn quota_groups_are_alternatives() {
    check(
        &["backend_name=a", "backend_name=b", "backend_name=a"],
        &[
            r#"take 1 or 0 {"0:backend_name": "a", "rls": "backend_name"}"#,
            r#"take 1 or 1 {"0:backend_name": "b", "rls": "backend_name"}"#,
            r#"take 1 or 0 {"0:backend_name": "a", "rls": "backend_name"}"#,
        ],
    );
}

#[test]
fn undecidable_requests_are_invalid() {
    #[track_caller]
    fn check(request: &RateLimitRequest, expect: &str) {
        let error = asked(&config(), request, CountRefused::Explicit).expect_err("it is not valid");
        assert!(error.contains(expect), "{error}");
    }
    check(&request("", &["path=/x"]), "domain must not be empty");
    check(&request("a\nb", &["path=/x"]), "domain must not contain control characters");
    check(&request(&"x".repeat(257), &["path=/x"]), "domain must not be longer than 256 bytes");
    check(&request("edge", &[]), "at least one descriptor");
    check(&request("edge", &["path=/x hits:9007199254740992"]), "descriptors[0]: hits_addend");
    check(&request("edge", &["path=/x"; 65]), "entries");
    let mut unknown = request("edge", &["path=/x limit:5"]);
    unknown.descriptors[0].limit = Some(RateLimitOverride { requests_per_unit: 5, unit: 0 });
    check(&unknown, "no unit that is known");
    let many = (0..65).map(|number| format!("k{number}=v")).collect::<Vec<_>>().join("|");
    check(&request("edge", &[&format!("{many} limit:5")]), "descriptors[0]: entries");
    // An unknown domain has no limits, not even those of the request.
    let found = asked(&config(), &request("other", &["path=/x limit:5"]), CountRefused::Explicit);
    assert_eq!(found, Ok(Vec::new()));
    // Long values are shortened, and stay different.
    let long = |end: &str| format!("path={}{end}", "x".repeat(5_000));
    let asked =
        asked(&config(), &request("edge", &[&long("1"), &long("2")]), CountRefused::Explicit).unwrap();
    assert!(asked[0] != asked[1], "{asked:?}");
}

/// The response to a decision with these limits: entry, limit, used, exceeded.
fn respond(request: &RateLimitRequest, allowed: bool, limits: &[(u32, u64, u64, bool)]) -> RateLimitResponse {
    let config = config();
    let mut plan = Plan::new(config.domain("edge"), request, CountRefused::Explicit).unwrap();
    let set = plan.command().unwrap();
    let status = |(entry, limit, used, exceeded): &(u32, u64, u64, bool)| AppliedLimit {
        entry: *entry,
        per: None,
        refill: None,
        status: LimitStatus {
            rule: None,
            override_name: None,
            group: set.as_ref().unwrap().entries()[0].key_values().clone(),
            limit: Limit::AtMost(*limit),
            used: *used,
            remaining: limit.checked_sub(*used),
            reset_ms: Some(limina_engine::Millis(1_500)),
            shadow: false,
            exceeded: *exceeded,
            waiting: 0,
        },
    };
    let decision =
        Checked { allowed, reported: false, limits: limits.iter().map(status).collect(), retry_after: None };
    plan.respond(set.is_some().then_some(&decision))
}

fn show(response: &RateLimitResponse) -> String {
    let status = |status: &limina_envoy::messages::DescriptorStatus| {
        let limit = status.current_limit.as_ref();
        let limit = limit.map_or("-".to_owned(), |limit| {
            format!("{}/{}{}", limit.requests_per_unit, limit.unit().word(), limit.name)
        });
        format!("{} {limit} {}", status.code().word(), status.limit_remaining)
    };
    let statuses: Vec<_> = response.statuses.iter().map(status).collect();
    format!("{}: {}", response.overall_code().word(), statuses.join(", "))
}

#[test]
fn responses() {
    let three = request("edge", &["nothing=1", "path=/x", "path=/x|user=root"]);
    // `root` replaces `all`, so nothing is asked.
    assert_eq!(show(&respond(&three, true, &[])), "OK: OK - 0, OK - 0, OK - 4294967295");
    let two = request("edge", &["path=/x", "path=/x|user=ann"]);
    let shown = show(&respond(&two, true, &[(0, 5, 1, false), (1, 6, 2, false)]));
    assert_eq!(shown, "OK: OK 5/MINUTEall 4, OK 6/WEEK 4");
    let response = respond(&two, false, &[(0, 5, 1, false), (1, 6, 6, true)]);
    assert_eq!(show(&response), "OVER_LIMIT: OK 5/MINUTEall 4, OVER_LIMIT 6/WEEK 0");
    // Whole seconds, rounded up.
    assert_eq!(response.statuses[0].duration_until_reset.unwrap().seconds, 2);
    assert_eq!(response.dynamic_metadata, None);
    // A rule that is not there yet: no limit.
    assert_eq!(show(&respond(&two, true, &[])), "OK: OK - 0, OK - 0");
    assert!(respond(&two, true, &[]).statuses.iter().all(|status| status.code() == Code::Ok));
}

#[test]
fn metadata_say_which_backends_have_quota() {
    let request = request("edge", &["backend_name=a", "backend_name=b"]);
    let response = respond(&request, true, &[(0, 7, 7, true), (1, 7, 1, false)]);
    let text = limina_envoy::write_response(&response);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let metadata = &value["dynamicMetadata"];
    assert_eq!(metadata["domain"], "edge");
    assert_eq!(metadata["descriptors"][1]["entries"][0], "backend_name=b");
    assert_eq!(metadata["metadata"]["cluster"]["name"], "warm");
    let passed = serde_json::json!([{"backend_name": "b", "model_name_override": ""}]);
    assert_eq!(metadata["passedBackends"], passed);
    assert_eq!(value["overallCode"], "OK");
}
