use super::*;
use limina_engine::{
    Millis,
    limiter::{Limit, Window},
};

/// What is found: a line for each namespace, rule and override, or for each problem.
#[track_caller]
fn check(text: &str, expect: &[&str]) {
    let found = match parse(text) {
        Ok(rules) => rules.into_iter().flat_map(|(name, rules)| shown(&name, rules)).collect(),
        Err(problems) => problems.iter().map(Problem::to_string).collect::<Vec<_>>(),
    };
    assert_eq!(found, expect, "{text}");
}

fn shown(name: &Name, rules: Vec<SetRule>) -> Vec<String> {
    let mut lines = vec![format!("{name}: {}", rules.len())];
    for SetRule { rule, overrides } in rules {
        let window = match rule.window {
            None => "in use".to_owned(),
            Some(Window::Fixed { per: Millis(per) }) => format!("fixed {per}"),
            Some(Window::Sliding { per: Millis(per) }) => format!("sliding {per}"),
            Some(Window::Bucket { per: Millis(per), burst }) => format!("bucket {per} {burst:?}"),
        };
        let limit = |limit| match limit {
            Limit::Unlimited => "no limit".to_owned(),
            Limit::AtMost(limit) => limit.to_string(),
        };
        lines.push(format!("{} {:?} {} {window}", rule.name, rule.group_by, limit(rule.limit)));
        lines.extend(
            overrides
                .iter()
                .map(|new| format!("{} {:?} {} {:?}", new.name, new.key_values, limit(new.limit), new.burst)),
        );
    }
    lines
}

#[test]
fn rules_are_what_they_are_over_http() {
    check(
        r#"
            [[namespaces.default.rules]]
            name = "per-ip"
            group_by = ["ip"]
            limit = 100
            window = { type = "sliding", per = "1m" }

            [[namespaces.default.rules.overrides]]
            name = "office"
            key_values = { ip = "10.0.0.1" }
            limit = 1000

            [[namespaces.default.rules]]
            Name = "in use"
            GroupBy = []
            Limit = -1

            [[namespaces."two words".rules]]
            name = "b"
            limit = 0x10
            window = { type = "bucket", per_ms = 500, burst = 20 }
            overrides = [{ name = "o", KeyValues = { n = 1, f = 1.0, b = true }, limit = 7, burst = 9 }]
        "#,
        &[
            "default: 2",
            "per-ip [\"ip\"] 100 sliding 60000",
            "office {\"ip\": \"10.0.0.1\"} 1000 None",
            "in use [] no limit in use",
            "two words: 1",
            "b [] 16 bucket 500 Some(20)",
            "o {\"b\": true, \"f\": 1.0, \"n\": 1} 7 Some(9)",
        ],
    );
    check("[namespaces]", &[]);
    check("namespaces.a.rules = []\n[namespaces.b]\nrules = []", &["a: 0", "b: 0"]);
    // The typed form of values, and a text that JSON has to escape.
    check(
        r#"
            [[namespaces.a.rules]]
            name = 'a"b\c'
            limit = 1
            selection = { k = { DataType = 0, Value = "7" }, "x.y" = { in = [1, 2.5], exists = true } }
        "#,
        &["a: 1", r#"a"b\c [] 1 in use"#],
    );
}

#[test]
fn what_is_no_file_of_rules() {
    check(
        "",
        &["line 1: namespaces: is required; in a file without rules, write an empty table [namespaces]"],
    );
    check(
        "namespace = 1\n\n[namespaces]",
        &["line 1: namespace: is not a known key; the only key here is `namespaces`"],
    );
    check("namespaces = 1", &["line 1: namespaces: must be a table, not an integer"]);
    check("[namespaces]\na = 1.5", &["line 2: namespaces.a: must be a table, not a float"]);
    check(
        "[namespaces.a]\n",
        &["line 1: namespaces.a.rules: is required; for a namespace without rules, write rules = []"],
    );
    check(
        "[namespaces.a]\nrules = 'x'",
        &["line 2: namespaces.a.rules: must be a list of tables, not a string"],
    );
    check("[namespaces.a]\nrules = [1]", &["line 2: namespaces.a.rules[0]: must be a table, not an integer"]);
    check(
        "[namespaces.a]\nrules = []\nrule = []",
        &["line 3: namespaces.a.rule: is not a known key; the only key here is `rules`"],
    );
    check(
        "[namespaces.'.']\nrules = []\n[namespaces.'']\nrules = []",
        &[
            "line 1: namespaces.\".\": must not be \".\" or \"..\"",
            "line 3: namespaces.\"\": must not be empty",
        ],
    );
    let problems = parse("[namespaces]\nx = \n[[namespaces.a.rules]\n").unwrap_err();
    let lines: Vec<usize> = problems.iter().map(|problem| problem.line).collect();
    assert!(lines.contains(&2) && lines.contains(&3), "{problems:?}");
    assert!(problems[0].detail.starts_with("this is not TOML: "), "{problems:?}");
}

#[test]
fn a_mistake_is_named_with_its_place() {
    #[track_caller]
    fn check_rule(fields: &str, expect: &[&str]) {
        let text = format!("[[namespaces.shop.rules]]\nname = \"a\"\nlimit = 1\n{fields}\n");
        let expect: Vec<String> =
            expect.iter().map(|line| line.replace("RULE", "namespaces.shop.rules[0]")).collect();
        check(&text, &expect.iter().map(String::as_str).collect::<Vec<_>>());
    }
    check_rule("limt = 2", &["line 4: RULE.limt: is not a known field"]);
    check_rule(
        "window = { type = 'fixed', per = '1s', size = 1 }",
        &["line 4: RULE.window.size: is not a known field"],
    );
    check_rule("Limit = 2", &["line 3: RULE.limit: is given twice"]);
    check_rule("window = { type = 'sliding' }", &["line 4: RULE.window.per: is required"]);
    check_rule(
        "[namespaces.shop.rules.window]\ntype = 'sliding'\nper = '1 minute'",
        &[
            "line 6: RULE.window.per: must be a duration such as \"1m30s\": \" minute\" is not a unit (d, h, m, s or ms)",
        ],
    );
    check_rule(
        "window = { type = 'fixed', per = '367d' }",
        &["line 4: RULE.window.per: must be from 1 ms to 366 days"],
    );
    check_rule(
        "window = { type = 'fixed', per = '1m', burst = 1 }",
        &["line 4: RULE.window.burst: must be absent, because only a bucket has a burst"],
    );
    check_rule("group_by = [\n'ip',\n'',\n]", &["line 6: RULE.group_by[1]: must have from 1 to 256 bytes"]);
    check_rule("group_by = ['ip', 'ip']", &["line 4: RULE.group_by[1]: repeats an earlier one"]);
    check_rule(
        "shadow = 2024-01-01",
        &["line 4: RULE.shadow: must not be a date or time; put it in quotes if it is a string"],
    );
    check_rule("selection = { x = nan }", &["line 4: RULE.selection.x: must be a finite number"]);
    check_rule(
        "selection = { x = 9223372036854775808 }",
        &[
            "line 4: RULE.selection.x: must be an integer from −2^63 to 2^63−1; a float needs a point or an exponent",
        ],
    );
    check_rule("selection = { 'x.y' = {} }", &["line 4: RULE.selection.x.y: must have at least one test"]);
    check_rule("overrides = 1", &["line 4: RULE.overrides: must be a list of tables, not an integer"]);
    check("[[namespaces.a.rules]]\nlimit = 1", &["line 1: namespaces.a.rules[0].name: is required"]);
    check(
        "[[namespaces.a.rules]]\nname = ''\nlimit = 1",
        &["line 2: namespaces.a.rules[0].name: must not be empty"],
    );
}

#[test]
fn rules_and_overrides_that_do_not_go_together() {
    check(
        r#"
[[namespaces.a.rules]]
name = "r"
group_by = ["ip"]
limit = 1
overrides = [
    { name = "x", key_values = { ip = 1 }, limit = 1 },
    { name = "x", key_values = { ip = 2 }, limit = 1 },
    { name = "y", key_values = { ip = 1 }, limit = 1 },
    { name = "z", key_values = { ip = 1.0 }, limit = 1 },
    { name = "u", key_values = { host = 1 }, limit = 1 },
    { name = "v", key_values = { ip = 3 }, limit = 1, burst = 5 },
    { key_values = { ip = 4 }, limit = 1 },
]
[[namespaces.a.rules]]
name = "r"
limit = 1
[[namespaces.b.rules]]
name = "r"
limit = 1
"#,
        &[
            "line 8: namespaces.a.rules[0].overrides[1].name: must be unique: \"x\" is used twice (line 7)",
            "line 9: namespaces.a.rules[0].overrides[2].key_values: must be unique: another override of the rule \
             has the same key-values (line 7)",
            "line 11: namespaces.a.rules[0].overrides[4].key_values.ip: is required, because the rule groups by it",
            "line 12: namespaces.a.rules[0].overrides[5].burst: must be absent, because the rule is not a bucket",
            "line 13: namespaces.a.rules[0].overrides[6].name: is required",
            "line 16: namespaces.a.rules[1].name: must be unique: \"r\" is used twice (line 2)",
        ],
    );
}
