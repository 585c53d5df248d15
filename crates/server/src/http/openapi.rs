//! The reference, generated from the handlers and the wire types.

use super::{around, events, ledger, limiter, locks, namespaces};
use crate::stomp;
use limina_wire::{Problem, problem::MEDIA_TYPE};
use utoipa::{
    OpenApi,
    openapi::{
        ContentBuilder, HeaderBuilder, ObjectBuilder, PathItem, Ref, RefOr, Required, ResponseBuilder,
        path::{Operation, Parameter, ParameterBuilder, ParameterIn},
        schema::{Schema, SchemaType, Type},
    },
};

/// Their paths also exist below a namespace.
const FAMILIES: [&str; 4] = ["ledger", "limiter", "locks", "events"];

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Limina",
        description = "May this happen now? Every path of a family also exists below `/v1/ns/{namespace}`; without \
            that prefix the namespace is `default`. Errors are problem documents (RFC 9457).",
    ),
    paths(
        ledger::create_limit,
        ledger::list_limits,
        ledger::get_limit,
        ledger::patch_limit,
        ledger::list_entries,
        ledger::hold,
        ledger::hold_batch,
        ledger::commit,
        ledger::commit_batch,
        ledger::rollback,
        ledger::rollback_batch,
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
        limiter::overrides::list_overrides,
        limiter::overrides::get_override,
        limiter::overrides::put_override,
        limiter::overrides::patch_override,
        limiter::overrides::delete_override,
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
        stomp::upgrade,
        stomp::time_sync,
        namespaces::list_namespaces,
        namespaces::delete_namespace,
        around::healthz,
        around::readyz,
        around::cluster,
        around::metrics,
        around::openapi,
        around::docs,
    ),
    components(schemas(Problem)),
    tags(
        (name = "ledger", description = "Limits as accounts; hold, commit and rollback; values now and as of any operation."),
        (name = "limiter", description = "Rules over any combination of key-values; overrides; checks, counters and leases."),
        (name = "locks", description = "Locks on sets of key-values: exclusive or shared, several at once, fair and fenced."),
        (name = "events", description = "Events once per duration, and the stream of what becomes of them: server-sent events, or STOMP over WebSocket."),
        (name = "namespaces", description = "The units of atomicity and order."),
        (name = "around", description = "Health, metrics, this reference."),
    ),
)]
struct Reference;

/// The reference as an OpenAPI document: pretty, and the same every time.
pub fn openapi_json() -> String {
    let mut document = Reference::openapi();
    let mut namespaced = Vec::new();
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            complete(operation);
        }
        // The other paths (`ns`, `cluster`) belong to no namespace.
        if let Some(rest) = path
            .strip_prefix("/v1/")
            .filter(|rest| FAMILIES.contains(&rest.split('/').next().unwrap_or_default()))
        {
            namespaced.push((format!("/v1/ns/{{namespace}}/{rest}"), in_namespace(item.clone())));
        }
    }
    document.paths.paths.extend(namespaced);
    let mut json = document.to_pretty_json().expect("the document consists of JSON alone");
    json.push('\n');
    json
}

/// Adds what follows from the conventions, so that no handler repeats it.
fn complete(operation: &mut Operation) {
    if operation.tags.iter().flatten().any(|tag| tag == "around") {
        if operation.operation_id.as_deref() == Some("readyz") {
            add_problem(operation, "503", "`ShardUnavailable`");
        }
        return;
    }
    add_problem(operation, "400", "`InvalidRequest`, with the offending `field`");
    if operation.request_body.is_some() {
        add_problem(operation, "408", "`RequestTimeout`");
        add_problem(operation, "413", "`PayloadTooLarge`");
        add_problem(operation, "415", "`UnsupportedMediaType`");
    }
    let mut takes_key = false;
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(parameter) = parameter else { continue };
        takes_key |= parameter.name == "Idempotency-Key";
        describe(parameter);
    }
    if takes_key {
        add_problem(operation, "422", "`IdempotencyKeyReused`");
    }
    let mut unavailable =
        "`Overloaded`, `ShuttingDown`, `StorageFull`, `ShardUnavailable`: nothing was done. \
        `OutcomeUnknown`: it may have been done"
            .to_owned();
    if operation.operation_id.as_deref() == Some("values") {
        unavailable.push_str(". `LimitsValuesReadingException`: stored history could not be read");
    }
    add_problem(operation, "503", &unavailable);
}

fn describe(parameter: &mut Parameter) {
    // An optional parameter may be left out, but has no way to be `null`.
    if let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema
        && let SchemaType::Array(types) = &object.schema_type
        && let [one, Type::Null] = &types[..]
    {
        object.schema_type = SchemaType::Type(one.clone());
    }
    let text = match parameter.name.as_str() {
        "Idempotency-Key" => {
            "1–256 bytes, quotes around it are stripped. The same request under the same key within 24 h gives the \
             first reply again and changes nothing."
        }
        "limit" => "How many items at most: 1–1000, 100 if absent.",
        "after" => "The `next` of the page before.",
        "name" | "operation_id" | "override" | "lease_id" | "namespace" => {
            "1–256 bytes of UTF-8 without control characters, percent-encoded."
        }
        _ => return,
    };
    parameter.description = Some(text.to_owned());
}

fn add_problem(operation: &mut Operation, status: &str, description: &str) {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let mut response = ResponseBuilder::new().description(description).content(MEDIA_TYPE, content);
    if status == "503" {
        let seconds = ObjectBuilder::new().schema_type(Type::Integer);
        let header = HeaderBuilder::new().schema(Some(seconds)).description(Some("Seconds to wait.")).build();
        response = response.header("Retry-After", header);
    }
    operation.responses.responses.insert(status.to_owned(), RefOr::T(response.build()));
}

/// The same path below a namespace.
fn in_namespace(mut item: PathItem) -> PathItem {
    for operation in operations(&mut item) {
        if let Some(id) = &mut operation.operation_id {
            id.push_str("_in_namespace");
        }
        let mut namespace = ParameterBuilder::new()
            .name("namespace")
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
            .build();
        describe(&mut namespace);
        operation.parameters.get_or_insert_default().insert(0, RefOr::T(namespace));
    }
    item
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete].into_iter().flatten()
}
