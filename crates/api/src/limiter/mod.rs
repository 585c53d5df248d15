//! The limiter: rules over any combination of key-values, overrides, checks, counters, leases.

mod checks;
mod counters;
mod groups;
mod leases;
mod limit;
mod overrides;
mod rule_sets;
mod rules;

pub use checks::{Check, CheckBatch, CheckBatchReply, CheckReply, CheckResult, LimitReached, LimitStatus};
pub use counters::{Counter, CounterChange, CounterReply};
pub use groups::{Group, Groups};
pub use leases::{Lease, LeaseReply, NewLease};
pub use limit::{Limit, MAX_COUNT};
pub use overrides::{NewOverride, Override, OverridePatch};
pub use rule_sets::{
    ChangedRule, ConflictCode, NewRuleSet, NewSetRule, RuleField, RuleSet, RuleSetChanges, RuleSetInfo,
    SetConflict, SetOverrides, SetRule,
};
pub use rules::{
    Durability, MatchQuery, MatchReply, NewRule, NewWindow, Rule, RuleMatch, RulePatch, Window, WindowType,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Heartbeat, Object};
    use serde::Deserialize;

    /// `expect` is a part of the error message; `None` if the JSON is valid.
    #[track_caller]
    fn check<'a, T: Deserialize<'a>>(json: &'a str, expect: Option<&str>) {
        match (serde_json::from_str::<Object<T>>(json), expect) {
            (Ok(_), None) => {}
            (Err(error), Some(part)) => assert!(error.to_string().contains(part), "{json} gave {error}"),
            (Ok(_), Some(_)) => panic!("{json} was accepted"),
            (Err(error), None) => panic!("{json} gave {error}"),
        }
    }

    #[test]
    fn aliases_are_the_same_field() {
        let rule = check::<NewRule>;
        rule(r#"{"Name": "r", "GroupBy": ["k"], "Selection": {}, "Limit": 1}"#, None);
        rule(r#"{"Name": "r", "GroupBy": ["k"], "Seletion": {}, "Limit": 1}"#, None);
        rule(r#"{"name": "r", "Name": "r", "limit": 1}"#, Some("duplicate field `name`"));
        rule(r#"{"name": "r", "limit": 1, "Limit": 1}"#, Some("duplicate field `limit`"));
        rule(r#"{"Selection": {}, "Seletion": {}, "limit": 1}"#, Some("duplicate field `selection`"));
        rule(r#"{"group_by": [], "GroupBy": [], "limit": 1}"#, Some("duplicate field `group_by`"));
        rule(r#"{"NAME": "r", "limit": 1}"#, Some("unknown field `NAME`"));
        check::<Check>(r#"{"KeyValues": {"k": 1}}"#, None);
        check::<Check>(r#"{"KeyValues": {}, "key_values": {}}"#, Some("duplicate field `key_values`"));
        check::<NewOverride>(r#"{"Name": "o", "KeyValues": {"k": 1}, "Limit": 1}"#, None);
        check::<OverridePatch>(r#"{"KeyValues": {"k": 1}, "Limit": 1}"#, None);
        check::<RulePatch>(r#"{"Seletion": null, "Limit": 1}"#, None);
        check::<CounterChange>(r#"{"KeyValues": {"k": 1}, "counters": 1}"#, None);
        check::<NewLease>(r#"{"KeyValues": {"k": 1}, "ttl": "1s"}"#, None);
        check::<MatchQuery>(r#"{"KeyValues": {"k": 1}}"#, None);
    }

    #[test]
    fn null_is_accepted_only_for_optional_fields() {
        let patch = check::<RulePatch>;
        let optional =
            r#"{"window": null, "selection": null, "shadow": null, "durability": null, "description": null}"#;
        patch(optional, None);
        patch(r#"{"limit": null}"#, Some("invalid type: null"));
        patch(r#"{"window": ["fixed", 1]}"#, Some("an object"));
        check::<OverridePatch>(r#"{"burst": null}"#, None);
        check::<OverridePatch>(r#"{"key_values": null}"#, Some("invalid type: null"));
        check::<Check>(r#"{"key_values": null}"#, Some("invalid type: null"));
        check::<Check>(r#"{"key_values": {}, "hits": null}"#, Some("invalid type: null"));
        check::<Heartbeat>("{}", Some("missing field `session_id`"));
        check::<Heartbeat>(r#"{"session_id": null}"#, Some("invalid type: null"));
    }

    #[test]
    fn a_reply_can_be_sent_back() {
        let rule = r#"{"name": "r", "group_by": [], "selection": {}, "limit": 1, "window": {"type": "fixed", "per_ms": 60000,
            "burst": null}, "shadow": false, "durability": "relaxed", "description": null, "overrides": 2, "managed_by":
            "file", "created_position": 7}"#;
        check::<NewRule>(rule, None);
        // A list of overrides is not the number of them, and would be lost.
        check::<NewRule>(r#"{"limit": 1, "overrides": []}"#, Some("invalid type: sequence"));
        let item = r#"{"rule": "r", "name": "o", "key_values": {}, "limit": 1, "burst": null, "created_position": 8}"#;
        check::<NewOverride>(item, None);
        check::<RulePatch>(r#"{"created_position": 7}"#, Some("unknown field"));
        let with_overrides = rule.replace(r#""overrides": 2"#, &format!(r#""overrides": [{item}]"#));
        let set = format!(
            r#"{{"name": "s", "rules": [{with_overrides}], "overrides": "open", "created_position": 9}}"#
        );
        check::<NewRuleSet>(&set, None);
        // A rule of a set has its overrides with it, and not their number.
        check::<NewRuleSet>(&format!(r#"{{"rules": [{rule}]}}"#), Some("invalid type: integer"));
        check::<NewRuleSet>(r#"{"overrides": "closed"}"#, Some("missing field `rules`"));
    }
}
