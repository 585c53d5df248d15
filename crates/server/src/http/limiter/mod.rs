//! The calls of the limiter: their routes.

pub(in crate::http) mod checks;
pub(in crate::http) mod groups;
pub(in crate::http) mod leases;
pub(in crate::http) mod overrides;
pub(in crate::http) mod rule_sets;
pub(in crate::http) mod rules;
mod submit;

use super::route::{Route, delete, get, patch, post, put};
use limina_access::Level::{Manage, Read, Use};

/// A rule can have the name `match` or `query`, and an override the name `query`. Its path is then also the path of that call, so
/// both sets of methods are registered there.
pub(in crate::http) fn routes() -> Vec<Route> {
    let mut routes: Vec<Route> = vec![
        ("/rules", "create_rule", post(Manage, rules::create_rule)),
        ("/rules", "list_rules", get(Read, rules::list_rules)),
        ("/rules/match", "match_rules", post(Read, rules::match_rules)),
        ("/rules/query", "query_rules", post(Read, rules::query_rules)),
        ("/rules/{name}/groups", "list_groups", get(Read, groups::list_groups)),
        ("/rules/{name}/overrides", "create_override", post(Manage, overrides::create_override)),
        ("/rules/{name}/overrides", "list_overrides", get(Read, overrides::list_overrides)),
        ("/rules/{name}/overrides/query", "query_overrides", post(Read, overrides::query_overrides)),
        ("/rule-sets", "list_rule_sets", get(Read, rule_sets::list_rule_sets)),
        ("/rule-sets/{set}", "get_rule_set", get(Read, rule_sets::get_rule_set)),
        ("/rule-sets/{set}", "put_rule_set", put(Manage, rule_sets::put_rule_set)),
        ("/rule-sets/{set}", "delete_rule_set", delete(Manage, rule_sets::delete_rule_set)),
        ("/check", "check", post(Use, checks::check)),
        ("/check/batch", "check_batch", post(Use, checks::check_batch)),
        ("/counters", "move_counter", post(Use, checks::move_counter)),
        ("/counters", "move_counter", put(Use, checks::put_counter)),
        ("/counters/set", "set_counter", put(Manage, checks::set_counter)),
        ("/counters/query", "query_counters", post(Read, checks::query_counters)),
        ("/leases", "take_lease", post(Use, leases::take_lease)),
        ("/leases", "list_leases", get(Read, leases::list_leases)),
        ("/leases/{lease_id}", "get_lease", get(Read, leases::get_lease)),
        ("/leases/{lease_id}", "release_lease", delete(Use, leases::release_lease)),
        ("/leases/{lease_id}/heartbeat", "extend_lease", post(Use, leases::extend_lease)),
    ];
    for path in ["/rules/{name}", "/rules/match", "/rules/query"] {
        routes.extend([
            (path, "get_rule", get(Read, rules::get_rule)),
            (path, "put_rule", put(Manage, rules::put_rule)),
            (path, "patch_rule", patch(Manage, rules::patch_rule)),
            (path, "delete_rule", delete(Manage, rules::delete_rule)),
        ]);
    }
    for path in ["/rules/{name}/overrides/{override}", "/rules/{name}/overrides/query"] {
        routes.extend([
            (path, "get_override", get(Read, overrides::get_override)),
            (path, "put_override", put(Manage, overrides::put_override)),
            (path, "patch_override", patch(Manage, overrides::patch_override)),
            (path, "delete_override", delete(Manage, overrides::delete_override)),
        ]);
    }
    routes
}

/// Paths in which a name is empty, with the parameter that it is.
pub(in crate::http) const EMPTY_NAMES: &[(&str, &str)] = &[
    ("/rules/", "name"),
    ("/rules//groups", "name"),
    ("/rules//overrides", "name"),
    ("/rules//overrides/{*rest}", "name"),
    ("/rules/{name}/overrides/", "override"),
    ("/rule-sets/", "set"),
    ("/leases/", "lease_id"),
    ("/leases//heartbeat", "lease_id"),
];
