//! All routes, in one table. Each names the right that it needs, so that a route without one does not compile.
//!
//! To add a call to a family, add one line to the `routes()` of the family:
//! `("/path/{name}", "operation", post(Use, handler))`. The level (`Read`, `Use`, `Manage`) is the right in the namespace of the
//! path. A handler that needs more for some requests, such as a forced release, asks `Scope::require`.

use super::{
    audit, console, decisions, docs, events, health, ledger, liminator, limiter, locks, namespaces, refusals,
    route::{Call, Route, delete, get, post},
};
use crate::{access::Needs, envoy, stomp};
use limina_access::{
    Family,
    Level::{Manage, Read},
};
use std::fmt::Write;

/// A route with its whole path.
pub(super) struct Entry {
    pub(super) path: String,
    /// The labels in metrics.
    pub(super) family: &'static str,
    pub(super) operation: &'static str,
    pub(super) call: Call,
}

/// Paths in which a name is empty, with the parameter that it is.
type EmptyNames = &'static [(&'static str, &'static str)];

/// The families, with their routes, and their paths in which a name is empty.
fn families() -> [(Family, Vec<Route>, EmptyNames); 5] {
    [
        (Family::Ledger, ledger::routes(), ledger::EMPTY_NAMES),
        (Family::Limiter, limiter::routes(), limiter::EMPTY_NAMES),
        (Family::Locks, locks::routes(), locks::EMPTY_NAMES),
        (Family::Events, events::routes(), events::EMPTY_NAMES),
        (Family::Decisions, decisions::routes(), decisions::EMPTY_NAMES),
    ]
}

/// The label of Envoy's routes in metrics.
pub(super) const ENVOY: &str = "envoy";

/// The paths of a family exist with and without a namespace.
const PREFIXES: [&str; 2] = ["/v1", "/v1/ns/{namespace}"];

/// All routes.
pub(super) fn all() -> Vec<Entry> {
    let mut entries = Vec::new();
    for (path, family, operation, call) in outside_families() {
        entries.push(Entry { path: path.to_owned(), family, operation, call });
    }
    for prefix in PREFIXES {
        for (family, routes, _) in families() {
            for (path, operation, call) in routes {
                let call = Call { needs: call.needs.of_family(family), ..call };
                let path = format!("{prefix}/{family}{path}");
                entries.push(Entry { path, family: family.word(), operation, call });
            }
        }
    }
    entries
}

/// Reading values needs this. The functions that write need `ledger:use`, which the handler checks: only the body says which
/// function it is.
const LIMINATOR: Needs = Needs::Family(Family::Ledger, Read);

fn outside_families() -> Vec<(&'static str, &'static str, &'static str, Call)> {
    let mut routes = vec![
        ("/", "server", "root", get(Needs::Nothing, console::root)),
        ("/healthz", "server", "healthz", get(Needs::Nothing, health::healthz)),
        ("/readyz", "server", "readyz", get(Needs::Nothing, health::readyz)),
        ("/openapi.json", "server", "openapi", get(Needs::Nothing, docs::openapi)),
        ("/docs", "server", "docs", get(Needs::Nothing, docs::docs)),
        ("/docs/docs.css", "server", "docs", get(Needs::Nothing, docs::style)),
        ("/docs/docs.js", "server", "docs", get(Needs::Nothing, docs::script)),
        ("/console", "server", "console", get(Needs::Nothing, console::page)),
        ("/console/", "server", "console", get(Needs::Nothing, console::page)),
        ("/console/{*rest}", "server", "console", get(Needs::Nothing, console::below)),
        ("/metrics", "server", "metrics", get(Needs::ClusterRead, health::metrics)),
        ("/v1/cluster", "server", "cluster", get(Needs::ClusterRead, health::cluster)),
        ("/v1/ns", "namespaces", "list_namespaces", get(Needs::Token, namespaces::list_namespaces)),
        (
            "/v1/ns/{namespace}",
            "namespaces",
            "delete_namespace",
            delete(Needs::Namespace(Manage), namespaces::delete_namespace),
        ),
        ("/v1/audit", "namespaces", "list_audit", get(Needs::Anywhere(Manage), audit::list_audit)),
        (
            "/v1/ns/{namespace}/audit",
            "namespaces",
            "list_namespace_audit",
            get(Needs::AnyFamily(Manage), audit::list_namespace_audit),
        ),
        (
            "/v1/refusals/stream",
            "refusals",
            "listen_to_refusals",
            get(Needs::Anywhere(Read), refusals::listen),
        ),
        (
            "/v1/ns/{namespace}/refusals/stream",
            "refusals",
            "listen_to_refusals",
            get(Needs::AnyFamily(Read), refusals::listen_in_namespace),
        ),
        ("/liminator/v1", "ledger", "liminator", post(LIMINATOR, liminator::call)),
        ("/v1/ns/{namespace}/liminator/v1", "ledger", "liminator", post(LIMINATOR, liminator::call)),
        ("/ws", "events", "stomp", get(Needs::Frames, stomp::upgrade)),
        ("/time-sync", "events", "time_sync", post(Needs::Token, stomp::time_sync)),
    ];
    for (path, operation, call) in events::plain_routes() {
        let needs = call.needs.of_family(Family::Events);
        routes.push((path, "events", operation, Call { needs, ..call }));
    }
    routes.extend(envoy::routes().into_iter().map(|(path, operation, call)| (path, ENVOY, operation, call)));
    routes
}

/// The paths in which a name is empty, with the parameter that it is.
pub(super) fn empty_names() -> Vec<(String, &'static str)> {
    let mut paths = vec![("/v1/ns/".to_owned(), "namespace"), ("/v1/ns//{*rest}".to_owned(), "namespace")];
    for prefix in PREFIXES {
        for (family, _, empty_names) in families() {
            paths.extend(
                empty_names.iter().map(|(path, parameter)| (format!("{prefix}/{family}{path}"), *parameter)),
            );
        }
    }
    paths
}

/// A Markdown table of all routes with the right that each needs, for the documentation. A path of a family is shown once: it
/// exists below `/v1/ns/{namespace}` too, and without that prefix the namespace is `default`.
pub fn rights_table() -> String {
    let mut rows: Vec<(String, String, String)> = all()
        .into_iter()
        .filter(|entry| !entry.path.starts_with("/v1/ns/{namespace}/"))
        .map(|Entry { path, call, .. }| (path, call.method.to_string(), call.needs.to_string()))
        .collect();
    rows.sort();
    rows.dedup();
    let mut table = "| call | needs |\n|---|---|\n".to_owned();
    for (path, method, needs) in rows {
        writeln!(table, "| `{method} {path}` | {needs} |").expect("writing to a string succeeds");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_no_token_has_no_data() {
        let open: Vec<String> = all()
            .into_iter()
            .filter(|entry| entry.call.needs == Needs::Nothing)
            .map(|entry| entry.path)
            .collect();
        let console = ["/console", "/console/", "/console/{*rest}"];
        let health = ["/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"];
        let server = ["/", "/healthz", "/readyz", "/openapi.json"];
        let files = ["/docs", "/docs/docs.css", "/docs/docs.js"];
        assert_eq!(open, [&server[..], &files, &console, &health].concat());
        // A level without a family would be that of all families.
        assert!(!all().iter().any(|entry| matches!(entry.call.needs, Needs::Level(_))));
    }
}
