//! The headers `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers): structured-field lists, one
//! member per limit, the tightest first.
//!
//! They are written by hand: every member is a quoted name and a few integers, and a check is the hottest call.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use limina_engine::{
    Millis,
    limiter::{AppliedLimit, Limit},
};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::{borrow::Cow, cmp::Ordering};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STATE: HeaderName = HeaderName::from_static("ratelimit");
/// The most limits in a header.
const MAX_LIMITS: usize = 8;
/// No further limit is added to a header of this size, because names may be long and clients bound the size of headers.
const MAX_BYTES: usize = 4096;
/// The largest integer of a structured field: 15 digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;
/// The ASCII characters that are percent-encoded in the name of a policy.
const ENCODED: &AsciiSet = &CONTROLS.add(b'"').add(b'\\').add(b'%');

/// Adds both headers, if any enforced limit applied.
pub(crate) fn add_headers<'a>(
    headers: &mut HeaderMap,
    limits: impl Iterator<Item = &'a AppliedLimit>,
    retry_after: Option<Millis>,
) {
    headers.extend(self::headers(limits, retry_after).into_iter().flatten());
}

/// Both headers, if any enforced limit applied.
pub(crate) fn headers<'a>(
    limits: impl Iterator<Item = &'a AppliedLimit>,
    retry_after: Option<Millis>,
) -> Option<[(HeaderName, HeaderValue); 2]> {
    let enforced = limits.filter_map(Enforced::new);
    let mut tightest: Vec<Enforced<'_>> = enforced.collect();
    if tightest.is_empty() {
        return None;
    }
    tightest.sort_by(Enforced::by_tightness);
    let mut policy = String::with_capacity(128);
    let mut state = String::with_capacity(128);
    let mut shown = 0;
    for (place, limit) in tightest.iter().enumerate() {
        if shown >= MAX_LIMITS || policy.len() >= MAX_BYTES {
            break;
        }
        // Several checks of a decision may have the same limit.
        if tightest[..place].iter().any(|earlier| earlier.is_same(limit)) {
            continue;
        }
        limit.write(retry_after, &mut policy, &mut state);
        shown += 1;
    }
    Some([(POLICY, policy), (STATE, state)].map(|(name, text)| {
        let value = HeaderValue::from_maybe_shared(Bytes::from(text));
        (name, value.expect("names are encoded, and the rest is ASCII"))
    }))
}

/// A finite limit of a rule that is not a shadow rule.
struct Enforced<'a> {
    status: &'a AppliedLimit,
    limit: u64,
    remaining: u64,
}

impl<'a> Enforced<'a> {
    fn new(status: &'a AppliedLimit) -> Option<Enforced<'a>> {
        match status.limit {
            Limit::AtMost(limit) if !status.shadow && status.rule.is_some() => {
                Some(Enforced { status, limit, remaining: status.remaining.unwrap_or_default() })
            }
            _ => None,
        }
    }

    /// Limits that refuse come first, then those with the smallest remaining share, then those with the least remaining.
    fn by_tightness(&self, other: &Enforced<'_>) -> Ordering {
        let part =
            |this: &Enforced<'_>, other: &Enforced<'_>| u128::from(this.remaining) * u128::from(other.limit);
        let refuses = other.status.exceeded.cmp(&self.status.exceeded);
        refuses
            .then_with(|| part(self, other).cmp(&part(other, self)))
            .then(self.remaining.cmp(&other.remaining))
    }

    fn is_same(&self, other: &Enforced<'_>) -> bool {
        let (own, other) = (self.status, other.status);
        own.rule == other.rule && own.override_name == other.override_name && own.group == other.group
    }

    fn write(&self, retry_after: Option<Millis>, policy: &mut String, state: &mut String) {
        if !policy.is_empty() {
            policy.push_str(", ");
            state.push_str(", ");
        }
        let name = policy_name(self.status);
        // A bucket allows its limit within `w` in the long run, and its burst at once.
        let quota = self.status.refill.unwrap_or(self.limit);
        for text in [&mut *policy, &mut *state] {
            text.push('"');
            text.push_str(&name);
            text.push('"');
        }
        add(policy, ";q=", quota);
        add(state, ";r=", self.remaining);
        match self.status.per {
            Some(per) => add(policy, ";w=", seconds(per)),
            None => policy.push_str(";qu=\"concurrent-requests\""),
        }
        if self.status.refill.is_some() {
            add(policy, ";burst=", self.limit);
        }
        let reset = match (self.status.reset_ms, retry_after) {
            // At `Retry-After` this limit no longer refuses the same request, so it is not announced for later.
            (Some(reset), Some(after)) if self.status.exceeded => Some(reset.min(after)),
            (reset, _) => reset,
        };
        if let Some(reset) = reset {
            add(state, ";t=", seconds(reset));
        }
    }
}

/// Adds a parameter with a number.
fn add(text: &mut String, parameter: &str, number: u64) {
    text.push_str(parameter);
    text.push_str(itoa::Buffer::new().format(number.min(MAX_INTEGER)));
}

/// `rule`, or `rule/override`, percent-encoded where it is not printable ASCII and for `"`, `\` and `%`.
pub(crate) fn policy_name(status: &AppliedLimit) -> Cow<'_, str> {
    let rule = status.rule.as_ref().map_or("", |name| name.as_str());
    let encoded = |text| Cow::from(utf8_percent_encode(text, ENCODED));
    match &status.override_name {
        None => encoded(rule),
        Some(name) => Cow::Owned(format!("{}/{}", encoded(rule), encoded(name.as_str()))),
    }
}

/// Whole seconds, rounded up.
pub(crate) fn seconds(span: Millis) -> u64 {
    span.0.div_ceil(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use limina_engine::{KeyValues, Name, limiter::LimitStatus};

    fn limit(rule: &str, limit: u64, used: u64) -> AppliedLimit {
        let status = LimitStatus {
            rule: Some(Name::new(rule).unwrap()),
            override_name: None,
            group: KeyValues::empty(),
            limit: Limit::AtMost(limit),
            used,
            remaining: Some(limit.saturating_sub(used)),
            reset_ms: Some(Millis(30_000)),
            shadow: false,
            exceeded: false,
            waiting: 0,
        };
        AppliedLimit { entry: 0, status, per: Some(Millis(60_000)), refill: None }
    }

    /// The limit with another status.
    fn with(change: impl FnOnce(&mut LimitStatus), mut limit: AppliedLimit) -> AppliedLimit {
        change(&mut limit.status);
        limit
    }

    #[track_caller]
    fn check(limits: Vec<AppliedLimit>, retry_after: Option<Millis>, expect: Option<(&str, &str)>) {
        let mut headers = HeaderMap::new();
        add_headers(&mut headers, limits.iter(), retry_after);
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(text(&POLICY).zip(text(&STATE)), expect);
        assert_eq!(headers.len(), expect.map_or(0, |_| 2));
    }

    #[test]
    fn members() {
        let never = |limit| with(|status| status.reset_ms = None, limit);
        let windowless = |rule| AppliedLimit { per: None, ..never(limit(rule, 10, 3)) };
        check(vec![], None, None);
        check(vec![with(|status| status.limit = Limit::Unlimited, limit("a", 0, 0))], None, None);
        check(vec![with(|status| status.shadow = true, limit("a", 1, 0))], None, None);
        check(vec![limit("burst", 100, 50)], None, Some((r#""burst";q=100;w=60"#, r#""burst";r=50;t=30"#)));
        check(vec![windowless("a")], None, Some((r#""a";q=10;qu="concurrent-requests""#, r#""a";r=7"#)));
        let name = Some(Name::new("o/ö").unwrap());
        let over = with(|status| status.override_name = name, limit("r \"\\%é~", 2, 5));
        check(
            vec![over],
            None,
            Some((r#""r %22%5C%25%C3%A9~/o/%C3%B6";q=2;w=60"#, r#""r %22%5C%25%C3%A9~/o/%C3%B6";r=0;t=30"#)),
        );
        let short = with(|status| status.reset_ms = Some(Millis(1)), limit("a", 1, 0));
        let short = AppliedLimit { per: Some(Millis(1001)), ..short };
        check(vec![short], None, Some((r#""a";q=1;w=2"#, r#""a";r=1;t=1"#)));
        let large = limit("a", (1 << 53) - 1, 0);
        check(vec![large], None, Some((r#""a";q=999999999999999;w=60"#, r#""a";r=999999999999999;t=30"#)));
        let bucket = AppliedLimit { refill: Some(100), ..limit("a", 20, 5) };
        check(vec![bucket], None, Some((r#""a";q=100;w=60;burst=20"#, r#""a";r=15;t=30"#)));
        check(vec![never(limit("a", 0, 0))], None, Some((r#""a";q=0;w=60"#, r#""a";r=0"#)));
    }

    #[test]
    fn the_tightest_come_first() {
        let names = |limits: Vec<AppliedLimit>| {
            let mut headers = HeaderMap::new();
            add_headers(&mut headers, limits.iter(), None);
            let members = headers[STATE].to_str().unwrap().split(", ");
            members.map(|member| member.split('"').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
        };
        let exceeded = with(|status| status.exceeded = true, limit("e", 10, 1));
        assert_eq!(
            names(vec![
                limit("a", 10, 5),
                limit("b", 100, 90),
                exceeded,
                limit("c", 0, 0),
                limit("d", 100, 50)
            ]),
            ["e", "c", "b", "a", "d"]
        );
        let many = (1..=20).map(|n| limit(&format!("r{n}"), 100, n)).collect();
        assert_eq!(names(many), ["r20", "r19", "r18", "r17", "r16", "r15", "r14", "r13"]);
        let long = (0..8).map(|n| limit(&format!("{n}{}", "é".repeat(127)), 10, 0)).collect();
        assert!(names(long).len() < 8);
    }

    #[test]
    fn a_limit_of_several_checks_stands_there_once() {
        let limits = [("a", 5), ("b", 5), ("a", 5), ("a", 5)].map(|(rule, used)| limit(rule, 10, used));
        let exceeded = with(|status| status.exceeded = true, limit("a", 10, 5));
        check(
            limits.into_iter().chain([exceeded]).collect(),
            None,
            Some((r#""a";q=10;w=60, "b";q=10;w=60"#, r#""a";r=5;t=30, "b";r=5;t=30"#)),
        );
    }

    #[test]
    fn a_limit_that_refuses_is_not_reset_after_retry_after() {
        let exceeded = with(|status| status.exceeded = true, limit("a", 10, 10));
        check(
            vec![exceeded, limit("b", 10, 0)],
            Some(Millis(4001)),
            Some((r#""a";q=10;w=60, "b";q=10;w=60"#, r#""a";r=0;t=5, "b";r=10;t=30"#)),
        );
    }
}
