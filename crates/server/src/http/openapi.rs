//! The API reference, generated from the handlers and the wire types.

mod exact;
mod examples;

use super::{audit, decisions, docs, events, health, ledger, limiter, locks, namespaces, refusals, routes};
use crate::{access::Needs, stomp};
use axum::http::Method;
use limina_api::{Problem, problem::MEDIA_TYPE};
use std::collections::HashMap;
use utoipa::{
    OpenApi,
    openapi::{
        ContentBuilder, Header, HeaderBuilder, ObjectBuilder, PathItem, Ref, RefOr, Required,
        ResponseBuilder,
        path::{Operation, Parameter, ParameterBuilder, ParameterIn},
        schema::{Schema, SchemaType, Type},
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

/// The paths of these families also exist below `/v1/ns/{namespace}`.
const FAMILIES: [&str; 6] = ["ledger", "limiter", "locks", "events", "decisions", "refusals"];

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Limina",
        description = "May this happen now? Rate limits, locks, events and reservations, decided in one total order. \
            Every path of a family also exists below `/v1/ns/{namespace}`; without that prefix the namespace is \
            `default`. Durations in requests are strings with a unit (`\"1m30s\"`), or whole milliseconds in fields whose names \
            end with `_ms`; in replies they are always the latter. Errors are problem documents (RFC 9457). \
            Every answer has the header `X-Request-Id`: the request's own, if it is 1–64 visible ASCII characters, or a new one.",
    ),
    paths(
        ledger::create_limit,
        ledger::list_limits,
        ledger::get_limit,
        ledger::patch_limit,
        ledger::delete_limit,
        ledger::list_entries,
        ledger::hold,
        ledger::hold_batch,
        ledger::commit,
        ledger::commit_batch,
        ledger::rollback,
        ledger::rollback_batch,
        ledger::extend,
        ledger::values,
        ledger::list_operations,
        ledger::get_operation,
        limiter::rules::create_rule,
        limiter::rules::list_rules,
        limiter::rules::get_rule,
        limiter::rules::put_rule,
        limiter::rules::patch_rule,
        limiter::rules::delete_rule,
        limiter::overrides::create_override,
        limiter::groups::list_groups,
        limiter::overrides::list_overrides,
        limiter::overrides::get_override,
        limiter::overrides::put_override,
        limiter::overrides::patch_override,
        limiter::overrides::delete_override,
        limiter::rule_sets::list_rule_sets,
        limiter::rule_sets::get_rule_set,
        limiter::rule_sets::put_rule_set,
        limiter::rule_sets::delete_rule_set,
        limiter::rules::match_rules,
        limiter::rules::query_rules,
        limiter::overrides::query_overrides,
        limiter::checks::check,
        limiter::checks::check_batch,
        limiter::checks::move_counter,
        limiter::checks::put_counter,
        limiter::checks::set_counter,
        limiter::checks::query_counters,
        limiter::leases::take_lease,
        limiter::leases::list_leases,
        limiter::leases::get_lease,
        limiter::leases::release_lease,
        limiter::leases::extend_lease,
        locks::acquire,
        locks::heartbeat,
        locks::release,
        locks::get_lock,
        locks::list_locks,
        locks::query_locks,
        events::put_stream,
        events::list_streams,
        events::get_stream,
        events::delete_stream,
        events::submit_event,
        events::incubating,
        events::follow,
        events::only_once_event,
        events::strictly_once_event,
        decisions::decide,
        decisions::list_decisions,
        decisions::get_decision,
        decisions::commit_decision,
        decisions::rollback_decision,
        decisions::heartbeat_decision,
        decisions::decide_batch,
        decisions::commit_decisions,
        decisions::rollback_decisions,
        stomp::upgrade,
        stomp::time_sync,
        namespaces::list_namespaces,
        namespaces::delete_namespace,
        audit::list_audit,
        audit::list_namespace_audit,
        health::healthz,
        health::readyz,
        health::cluster,
        health::metrics,
        refusals::listen,
        docs::openapi,
        docs::docs,
    ),
    components(schemas(Problem, limina_api::Name, limina_api::RequestId)),
    tags(
        (name = "ledger", description = "Limits as accounts: hold a value, then commit it or roll it back. Read values now or at any earlier operation."),
        (name = "limiter", description = "Rules that limit any combination of key-values, and overrides for exact values. Checks, counters and leases take from the limits."),
        (name = "locks", description = "Locks on sets of key-values: exclusive or shared, several at once, granted in the order of arrival, with fencing tokens."),
        (name = "events", description = "Events that are accepted once per duration. Followers receive what happens to them by server-sent events, or by STOMP over WebSocket."),
        (name = "decisions", description = "One decision over checks, holds, locks and an event: all of it at one instant, or nothing. Reserve an estimate, settle the actual."),
        (name = "namespaces", description = "A namespace is the unit of atomicity and order. The first write to it creates it."),
        (name = "server", description = "Health, metrics, the cluster, and this reference."),
    ),
)]
struct Reference;

/// The API reference as an indented OpenAPI document. The text is the same in every run.
pub fn generated_openapi() -> String {
    let mut document = Reference::openapi();
    let mut namespaced = Vec::new();
    if let Some(components) = &mut document.components {
        exact::complete_schemas(&mut components.schemas);
        components.headers.insert("X-Request-Id".to_owned(), RefOr::T(request_id()));
    }
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            complete(operation);
            exact::complete_operation(operation);
            add_request_id(operation);
        }
        // Paths outside the families, such as `/v1/cluster`, belong to no namespace.
        if let Some(rest) = path
            .strip_prefix("/v1/")
            .filter(|rest| FAMILIES.contains(&rest.split('/').next().unwrap_or_default()))
        {
            namespaced.push((format!("/v1/ns/{{namespace}}/{rest}"), in_namespace(item.clone())));
        }
    }
    document.paths.paths.extend(namespaced);
    add_rights(&mut document);
    examples::add(&mut document.paths.paths);
    let mut json = document.to_pretty_json().expect("the document consists of JSON alone");
    json.push('\n');
    json
}

/// Adds the token, and the answers to a request without one or without the right, to every operation that needs one.
fn add_rights(document: &mut utoipa::openapi::OpenApi) {
    let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
        "`limina_` and 43 characters, if the server has tokens. Without tokens, no request needs one.",
    ));
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("token", SecurityScheme::Http(scheme.build()));
    let needs: HashMap<(String, Method), Needs> =
        routes::all().into_iter().map(|entry| ((entry.path, entry.call.method), entry.call.needs)).collect();
    for (path, item) in &mut document.paths.paths {
        let methods = [
            (Method::GET, &mut item.get),
            (Method::POST, &mut item.post),
            (Method::PUT, &mut item.put),
            (Method::PATCH, &mut item.patch),
            (Method::DELETE, &mut item.delete),
        ];
        for (method, operation) in methods {
            let Some(operation) = operation else { continue };
            let needs = needs.get(&(path.clone(), method)).copied();
            let needs = needs.expect("every operation of the reference has a route");
            if needs == Needs::Nothing {
                continue;
            }
            operation.security = Some(vec![SecurityRequirement::new("token", [""; 0])]);
            add_problem(
                operation,
                "401",
                "`Unauthorized`: the server has tokens, and the request has no valid one.",
            );
            let forbidden = match needs {
                Needs::Token | Needs::Frames => {
                    "`Forbidden`: the page in the browser is that of another site."
                }
                _ => "`Forbidden`: the token does not have the right that `needs` names.",
            };
            add_problem(operation, "403", forbidden);
            let right = match needs {
                Needs::Token => "Needs a token.".to_owned(),
                other => format!("Needs {other}."),
            };
            let text = operation.description.take();
            operation.description = Some(text.map_or(right.clone(), |text| format!("{text}\n\n{right}")));
        }
    }
}

/// Adds the answers and descriptions that all operations have in common, so that no handler repeats them.
fn complete(operation: &mut Operation) {
    if operation.tags.iter().flatten().any(|tag| tag == "server") {
        match operation.operation_id.as_deref() {
            Some("readyz") => {
                let reason =
                    "`ShardUnavailable`: the server is starting or stopping, or does not reach its database.";
                add_problem(operation, "503", reason)
            }
            Some("cluster") => add_problem(operation, "400", "`InvalidRequest`: `namespace` is not a name."),
            _ => {}
        }
        return;
    }
    add_problem(operation, "400", "`InvalidRequest`: `field` names the invalid part of the request.");
    if operation.operation_id.as_deref().is_some_and(|id| WAITING.contains(&id)) {
        let hung_up = "`ClientHungUp`: the client closed its side of the connection before the answer.";
        add_to_problem(operation, "400", hung_up);
    }
    if operation.request_body.is_some() {
        add_problem(operation, "408", "`RequestTimeout`: the body did not arrive within 30 seconds.");
        add_problem(
            operation,
            "413",
            "`PayloadTooLarge`: the body is too large. `AnswerTooLarge`: the answer would be.",
        );
        add_problem(operation, "415", "`UnsupportedMediaType`: the body is not JSON, or is compressed.");
    }
    if operation.operation_id.as_deref().is_some_and(|id| OF_HOLDERS.contains(&id)) {
        let part =
            "`PartOfOperation`: it is a part of an open decision, which is extended and ended as a whole.";
        add_to_problem(operation, "409", part);
    }
    let mut takes_key = false;
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(parameter) = parameter else { continue };
        takes_key |= parameter.name == "Idempotency-Key";
        describe(parameter);
    }
    if may_grow(operation) {
        add_to_problem(operation, "507", QUOTA_EXCEEDED);
    }
    if takes_key {
        add_to_problem(operation, "422", "`IdempotencyKeyReused`: the key was used for another request.");
        let in_use = "`IdempotencyKeyInUse`: the first request with this key is not answered yet.";
        add_to_problem(operation, "409", in_use);
    }
    let mut unavailable =
        "`Overloaded`, `ShuttingDown`, `StorageFull`, `ShardUnavailable`: nothing was done. \
        `OutcomeUnknown`: the request may have been executed."
            .to_owned();
    if operation.operation_id.as_deref() == Some("values") {
        unavailable.push_str(" `LimitsValuesReadingException`: the stored history could not be read.");
    }
    add_problem(operation, "503", &unavailable);
}

/// The header of every answer.
fn request_id() -> Header {
    HeaderBuilder::new()
        .schema(Some(Ref::from_schema_name("RequestId")))
        .description(Some("The id of the request: its own `X-Request-Id`, or a new one."))
        .build()
}

/// Names the header `X-Request-Id` of successful answers. The id of a problem document is in its field `request_id`.
fn add_request_id(operation: &mut Operation) {
    for (status, response) in &mut operation.responses.responses {
        if let (true, RefOr::T(response)) = (status.starts_with('2'), response) {
            let header = Ref::new("#/components/headers/X-Request-Id");
            response.headers.insert("X-Request-Id".to_owned(), RefOr::Ref(header));
        }
    }
}

/// The operations that may wait for a lock or a slot.
const WAITING: [&str; 3] = ["acquire", "take_lease", "decide"];

/// The operations on what a decision may hold.
const OF_HOLDERS: [&str; 7] =
    ["hold", "commit", "rollback", "extend", "release_lease", "release", "heartbeat"];

const QUOTA_EXCEEDED: &str =
    "`QuotaExceeded`: the namespace has reached the quota that `quota` names. Nothing was done.";

/// Whether the operation can be refused for a quota: it creates something, or keeps its reply.
fn may_grow(operation: &Operation) -> bool {
    let takes_key = operation
        .parameters
        .iter()
        .flatten()
        .any(|parameter| matches!(parameter, RefOr::T(parameter) if parameter.name == "Idempotency-Key"));
    let creates = ["patch_limit", "patch_rule", "patch_override", "follow"];
    takes_key || operation.operation_id.as_deref().is_some_and(|id| creates.contains(&id))
}

fn describe(parameter: &mut Parameter) {
    // utoipa gives optional parameters the type `null` too, which a parameter cannot have.
    if let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema
        && let SchemaType::Array(types) = &object.schema_type
        && let [one, Type::Null] = &types[..]
    {
        object.schema_type = SchemaType::Type(one.clone());
    }
    let text = match parameter.name.as_str() {
        "Idempotency-Key" => {
            "1–256 bytes; quotes around the key are removed. If the same request is sent again with the same key within \
             24 hours, it returns the first reply and changes nothing."
        }
        "limit" => "The maximum number of items, 1–1000. Default: 100.",
        "after" => "The `next` of the previous page. Absent: the first page.",
        "name" | "set" | "operation_id" | "override" | "lease_id" | "lock_id" | "stream" | "namespace" => {
            "1–256 bytes of UTF-8 without control characters, percent-encoded."
        }
        "session_id" => {
            "The `session_id` that was granted together with the lock. Required, except with `force=true`."
        }
        "force" => "`true`: release the lock without its session, as an operator. Default: `false`.",
        "dry_run" => "`true`: change nothing, and say what would change. Default: `false`.",
        "Last-Event-ID" => {
            "The `id` of the last message that the client received. Absent: start with a key frame."
        }
        _ => return,
    };
    parameter.description = Some(text.to_owned());
}

/// Adds to what the operation says itself about a status.
fn add_to_problem(operation: &mut Operation, status: &str, description: &str) {
    match operation.responses.responses.get_mut(status) {
        Some(RefOr::T(own)) => {
            let end = if own.description.ends_with('.') { "" } else { "." };
            own.description += &format!("{end} {description}");
        }
        _ => add_problem(operation, status, description),
    }
}

fn add_problem(operation: &mut Operation, status: &str, description: &str) {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let mut response = ResponseBuilder::new().description(description).content(MEDIA_TYPE, content);
    if status == "503" {
        let seconds = ObjectBuilder::new().schema_type(Type::Integer);
        let header = HeaderBuilder::new()
            .schema(Some(seconds))
            .description(Some("The number of seconds to wait before a retry."))
            .build();
        response = response.header("Retry-After", header);
    }
    operation.responses.responses.insert(status.to_owned(), RefOr::T(response.build()));
}

/// The same operations below `/v1/ns/{namespace}`, with ids of their own.
fn in_namespace(mut item: PathItem) -> PathItem {
    for operation in operations(&mut item) {
        if let Some(id) = &mut operation.operation_id {
            id.push_str("_in_namespace");
        }
        let mut namespace = ParameterBuilder::new()
            .name("namespace")
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .schema(Some(Ref::from_schema_name("Name")))
            .build();
        describe(&mut namespace);
        operation.parameters.get_or_insert_default().insert(0, RefOr::T(namespace));
    }
    item
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete].into_iter().flatten()
}
