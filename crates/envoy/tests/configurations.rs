//! Which configurations are refused, and why: the cases of envoyproxy/ratelimit's loader and of its tests, with texts of our own.

use limina_envoy::{Config, load};

/// The text begins with a line break, so its first line has the number 2.
#[track_caller]
fn check(text: &str, expect: &str) {
    let found = match load([("limits.yaml", text)]) {
        Ok(_) => "accepted".to_owned(),
        Err(problems) => problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    };
    assert!(found.starts_with(expect), "{text}\nfound:  {found}\nexpect: {expect}");
}

#[track_caller]
fn accept(text: &str) -> Config {
    check(text, "accepted");
    load([("limits.yaml", text)]).expect("it was accepted")
}

/// One descriptor with these lines below its `rate_limit`.
fn limit(lines: &str) -> String {
    let lines: String = lines.split('|').map(|line| format!("\n      {line}")).collect();
    format!("\ndomain: edge\ndescriptors:\n  - key: user\n    rate_limit:{lines}")
}

/// One descriptor with these lines beside a limit of one a second.
fn descriptor(lines: &str) -> String {
    let lines: String = lines.split('|').map(|line| format!("\n    {line}")).collect();
    format!("\ndomain: edge\ndescriptors:\n  - rate_limit: {{unit: second, requests_per_unit: 1}}{lines}")
}

#[test]
fn domains() {
    check("\ndomain: edge", "accepted");
    check("\ndomain: edge\ndescriptors:", "accepted");
    check("\ndomain: edge\ndescriptors: []", "accepted");
    // A number that is used as a text keeps its spelling in the file.
    let config = accept("\ndomain: 0123");
    assert!(config.domain("0123").is_some());
    check("", "limits.yaml: the file has no domain");
    check("\n# nothing", "limits.yaml: the file has no domain");
    check("\ndescriptors: []", "limits.yaml: line 2: the file has no domain");
    check("\ndomain:", "limits.yaml: line 2: the file has no domain");
    check("\ndomain: ''", "limits.yaml: line 2: the file has no domain");
    check("\n- domain: edge", "limits.yaml: line 2: the file must be a map");
    check("\nedge", "limits.yaml: line 2: the file must be a map");
    check("\ndomain: {name: edge}", "limits.yaml: line 2: `domain` must be a text");
    // Only the first document counts.
    check("\ndomain: edge\n---\nnonsense: [", "accepted");
    // Domains that the original accepts, but that are no valid names of namespaces.
    check("\ndomain: ..", "limits.yaml: line 2: the domain cannot be a namespace");

    let two = |first: &str, second: &str| {
        let texts = [("one.yaml", format!("domain: {first}")), ("two.yaml", format!("\ndomain: {second}"))];
        load(texts.iter().map(|(name, text)| (*name, text.as_str())))
    };
    assert_eq!(two("a", "b").unwrap().domains().len(), 2);
    let problems = two("a", "a").unwrap_err();
    assert_eq!(problems[0].to_string(), "two.yaml: line 2: another file has the domain `a` already");
}

#[test]
fn keys() {
    check(
        "\ndomain: edge\ndescriptors:\n  - key: a\n    ratelimit: {}",
        "limits.yaml: line 5: the key `ratelimit` is unknown",
    );
    check(
        &limit("unit: second|requestsperunit: 5"),
        "limits.yaml: line 7: the key `requestsperunit` is unknown",
    );
    check("\ndomain: edge\nDescriptors: []", "limits.yaml: line 3: the key `Descriptors` is unknown");
    check("\ndomain: edge\n0.25: 1", "limits.yaml: line 3: the key `0.25` is not a text");
    check("\ndomain: edge\ntrue: 1", "limits.yaml: line 3: the key `true` is not a text");
    check("\ndomain: edge\n~: 1", "limits.yaml: line 3: the key `~` is not a text");
    check("\ndomain: edge\n[a]: 1", "limits.yaml: line 3: a key must be a text");
    // A known key at a wrong place has no effect, but its value must have the right type.
    check("\ndomain: edge\nunit: parsec", "accepted");
    check("\ndomain: edge\nunit: 1.5", "limits.yaml: line 3: `unit` is the number 1.5");
    check("\ndomain: edge\nreplaces: [a]", "limits.yaml: line 3: every item of `replaces` must be a map");
    // Of several equal keys the last one counts.
    let config = accept("\ndomain: edge\ndomain: core");
    assert!(config.domain("core").is_some());
}

#[test]
fn descriptors() {
    check("\ndomain: edge\ndescriptors: a", "limits.yaml: line 3: `descriptors` must be a list");
    check("\ndomain: edge\ndescriptors: {key: a}", "limits.yaml: line 3: `descriptors` must be a list");
    check(
        "\ndomain: edge\ndescriptors: [a]",
        "limits.yaml: line 3: every item of `descriptors` must be a map",
    );
    check(
        "\ndomain: edge\ndescriptors:\n  -",
        "limits.yaml: line 4: every item of `descriptors` must be a map",
    );
    check("\ndomain: edge\ndescriptors:\n  - value: a", "limits.yaml: line 4: the descriptor has no key");
    check("\ndomain: edge\ndescriptors:\n  - key: ''", "limits.yaml: line 4: the descriptor has no key");
    check("\ndomain: edge\ndescriptors:\n  - key: [{key: a}]", "limits.yaml: line 4: `key` must be a text");
    check("\ndomain: edge\ndescriptors:\n  - {key: a, value: yes}", "accepted");
    check(
        "\ndomain: edge\ndescriptors:\n  - {key: a, value: 1.5}",
        "limits.yaml: line 4: `value` is the number 1.5",
    );
    check("\ndomain: edge\ndescriptors:\n  - {key: a, value: '1.5'}", "accepted");
    check(
        "\ndomain: edge\ndescriptors:\n  - {key: a, value: 08}",
        "limits.yaml: line 4: `value` is the number 08",
    );
    check("\ndomain: edge\ndescriptors:\n  - {key: a, value: 10.0.0.1}", "accepted");
    check("\ndomain: edge\ndescriptors:\n  - {key: a, value: 2026-11-16}", "accepted");
    let twice = "\ndomain: edge\ndescriptors:\n  - {key: a, value: b}\n  - {key: a}\n  - {key: a, value: b}";
    check(twice, "limits.yaml: line 6: the descriptor `a_b` is here twice");
    // The original compares only the joined text.
    check(
        "\ndomain: edge\ndescriptors:\n  - {key: a, value: b_c}\n  - {key: a_b, value: c}",
        "limits.yaml: line 5: ",
    );
    // Equal descriptors below different parents are different limits.
    check("\ndomain: edge\ndescriptors:\n  - key: a\n    descriptors: [{key: b}]\n  - key: b", "accepted");
}

#[test]
fn limits() {
    check(&limit("unit: second|requests_per_unit: 5"), "accepted");
    for unit in ["second", "Minute", "HOUR", "day", "week", "month", "year"] {
        check(&limit(&format!("unit: {unit}")), "accepted");
    }
    check(&limit("unit: fortnight"), "limits.yaml: line 6: the unit `fortnight` is not one of");
    check(&limit("unit: unknown"), "limits.yaml: line 6: the unit `unknown` is not one of");
    check(&limit("requests_per_unit: 5"), "limits.yaml: line 6: the unit `` is not one of");
    check("\ndomain: edge\ndescriptors:\n  - key: a\n    rate_limit:", "accepted");
    check(
        "\ndomain: edge\ndescriptors:\n  - key: a\n    rate_limit: {}",
        "limits.yaml: line 5: the unit `` is not one of",
    );
    check(
        "\ndomain: edge\ndescriptors:\n  - key: a\n    rate_limit: 5",
        "limits.yaml: line 5: `rate_limit` must be a map",
    );
    check(
        "\ndomain: edge\ndescriptors:\n  - key: a\n    rate_limit: []",
        "limits.yaml: line 5: `rate_limit` must be a map",
    );
    check(&limit("unit: second|requests_per_unit: 0x10"), "accepted");
    check(&limit("unit: second|requests_per_unit: 4294967295"), "accepted");
    check(&limit("unit: second|requests_per_unit:"), "accepted");
    for wrong in ["4294967296", "-1", "'5'", "many", "yes", "{unit: day}"] {
        let expect = "limits.yaml: line 7: `requests_per_unit` must be a whole number";
        check(&limit(&format!("unit: second|requests_per_unit: {wrong}")), expect);
    }
    check(
        &limit("unit: second|requests_per_unit: 5.0"),
        "limits.yaml: line 7: `requests_per_unit` is the number 5.0",
    );
    check(&limit("unlimited: true"), "accepted");
    check(&limit("unlimited: true|unit: fortnight"), "accepted");
    check(&limit("unlimited: true|unit: day"), "limits.yaml: line 7: an unlimited rate limit has no unit");
    check(&limit("unlimited: false|unit: day"), "accepted");
    check(&limit("unlimited: maybe"), "limits.yaml: line 6: `unlimited` must be true or false");
}

#[test]
fn replaces() {
    check(&limit("unit: day|name: a|replaces: [{name: b}, {name: c}]"), "accepted");
    check(&limit("unlimited: true|replaces: [{name: b}]"), "accepted");
    check(&limit("unit: day|replaces:"), "accepted");
    check(
        &limit("unit: day|name: a|replaces: [{name: a}]"),
        "limits.yaml: line 8: the rate limit `a` replaces itself",
    );
    check(
        &limit("unit: day|name: a|replaces: [{name: ''}]"),
        "limits.yaml: line 8: an item of `replaces` has no name",
    );
    check(
        &limit("unit: day|replaces: [{unit: day}]"),
        "limits.yaml: line 7: an item of `replaces` has no name",
    );
    check(&limit("unit: day|replaces: {name: b}"), "limits.yaml: line 7: `replaces` must be a list");
    check(&limit("unit: day|replaces: [b]"), "limits.yaml: line 7: every item of `replaces` must be a map");
}

#[test]
fn flags_and_metadata() {
    check(&descriptor("key: a|shadow_mode: yes|quota_mode: on|share_threshold: off"), "accepted");
    check(
        &descriptor("key: a|shadow_mode: 'yes'"),
        "limits.yaml: line 6: `shadow_mode` must be true or false",
    );
    check(&descriptor("key: a|quota_mode: 1"), "limits.yaml: line 6: `quota_mode` must be true or false");
    check(&descriptor("key: a|value: b*|share_threshold: true"), "accepted");
    check(&descriptor("key: a|value: b*c|share_threshold: true"), "accepted");
    check(
        &descriptor("key: a|value: b|share_threshold: true"),
        "limits.yaml: line 4: `share_threshold` needs a value with a `*`",
    );
    check(
        &descriptor("key: a|share_threshold: true"),
        "limits.yaml: line 4: `share_threshold` needs a value with a `*`",
    );
    let config = accept(&descriptor("key: a|detailed_metric: true|value_to_metric: true"));
    assert_eq!(
        config.ignored().map(|ignored| ignored.key()).collect::<Vec<_>>(),
        ["detailed_metric", "value_to_metric"]
    );
    check(&descriptor("key: a|metadata: {anything: [1, 2.5, ~, {at: all}], 5: x}"), "accepted");
    check(&descriptor("key: a|metadata:"), "accepted");
    check(&descriptor("key: a|metadata: 5"), "limits.yaml: line 6: `metadata` must be a map");
}

#[test]
fn yaml() {
    check("\ndomain: edge\ndescriptors: [", "limits.yaml: line ");
    check("\ndomain: \"edge", "limits.yaml: line ");
    check("\ndomain: edge\n\tkey: a", "limits.yaml: line 2: this is not YAML");
    // Anchors and merge keys.
    let merged = "\ndomain: edge\ndescriptors:\n  - key: a\n    rate_limit: &limit {unit: day, requests_per_unit: 5}\n  - key: b\n    rate_limit:\n      <<: *limit\n      requests_per_unit: 7";
    let config = accept(merged);
    let limits: Vec<_> =
        config.domain("edge").unwrap().rules().iter().map(|rule| format!("{:?}", rule.limit)).collect();
    assert_eq!(limits, ["AtMost(5)", "AtMost(7)"]);
    check("\ndomain: edge\n<<: 5", "limits.yaml: line 3: `<<` merges a map");
    check("\ndomain: edge\ndescriptors: *nowhere", "limits.yaml: line ");
    // A few anchors must not become billions of values.
    let mut bomb = "\ndomain: edge\nmetadata:\n  a: &a0 [1, 1, 1, 1, 1, 1, 1, 1]\n".to_owned();
    for level in 1..12 {
        let below = format!("*a{}, ", level - 1).repeat(8);
        bomb.push_str(&format!("  b{level}: &a{level} [{below}]\n"));
    }
    check(&bomb, "limits.yaml: line ");
    let deep = format!("\ndomain: edge\nmetadata: {}1{}", "[".repeat(5_000), "]".repeat(5_000));
    check(&deep, "limits.yaml: line 3: ");
    // Nor must anchors become levels without end.
    let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(40), "]".repeat(40));
    let (first, second) = (nested("1"), nested("*first"));
    check(
        &format!("\ndomain: edge\nmetadata:\n  a: &first {first}\n  b: {second}"),
        "limits.yaml: line 5: lists and maps are nested more than 64 levels deep",
    );
}

#[test]
fn rules_have_names_and_groups() {
    #[track_caller]
    fn check(descriptors: &str, expect: &[&str]) {
        let text = format!("domain: edge\ndescriptors:\n{descriptors}");
        let config = load([("limits.yaml", text.as_str())]).expect("a valid configuration");
        let rules = config.domain("edge").unwrap().rules().iter();
        let shown = |rule: &limina_engine::limiter::NewRule| format!("{} {:?}", rule.name, rule.group_by);
        assert_eq!(rules.map(shown).collect::<Vec<_>>(), expect);
    }
    let day = "rate_limit: {unit: day, requests_per_unit: 5}";
    check(&format!("- {{key: a, value: b, {day}}}"), &["a=b []"]);
    check(&format!("- {{key: a, {day}}}"), &[r#"a ["0:a"]"#]);
    check(&format!("- {{key: a, value: b*, {day}}}"), &[r#"a=b* ["0:a"]"#]);
    check(&format!("- {{key: a, value: b*, share_threshold: true, {day}}}"), &["a=b* []"]);
    check(&format!("- {{key: a*, {day}}}"), &[r#"a* ["0:a*"]"#]);
    let nested = format!("- key: a\n  descriptors:\n  - {{key: a, value: 1, {day}}}\n  - {{key: a, {day}}}");
    check(&nested, &[r#"a/a=1 ["0:a"]"#, r#"a/a ["0:a", "1:a"]"#]);
    // Names are unique whatever the keys are.
    check(
        &format!("- {{key: a/b, {day}}}\n- {{key: a, value: 'x=y', {day}}}"),
        &[r#"a%2Fb ["0:a/b"]"#, "a=x%3Dy []"],
    );
    let long = "k".repeat(300);
    let text = format!("domain: edge\ndescriptors:\n- {{key: {long}1, {day}}}\n- {{key: {long}2, {day}}}");
    let config = load([("limits.yaml", text.as_str())]).expect("a valid configuration");
    let names: Vec<_> =
        config.domain("edge").unwrap().rules().iter().map(|rule| rule.name.as_str().to_owned()).collect();
    assert!(names[0] != names[1] && names.iter().all(|name| name.len() <= 256), "{names:?}");
}
