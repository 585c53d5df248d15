//! Makes the reference say what the server demands, where the attributes of the wire types cannot: fields that exclude each
//! other, and the ranges of integers.

use std::collections::BTreeMap;
use utoipa::{
    Number,
    openapi::{
        Ref, RefOr, Required,
        path::{Operation, Parameter, ParameterIn},
        schema::{
            AdditionalProperties, AllOfBuilder, AnyOfBuilder, Array, ArrayItems, KnownFormat, Object,
            ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, SchemaType, Type,
        },
    },
};

type Schemas = BTreeMap<String, RefOr<Schema>>;

/// Completes the schemas of the document.
pub(super) fn complete_schemas(schemas: &mut Schemas) {
    for (name, list, field) in UNIQUE {
        if let Some(RefOr::T(Schema::Object(object))) = schemas.get_mut(*name)
            && let Some(RefOr::T(Schema::Array(array))) = object.properties.get_mut(*list)
        {
            array.extensions = Some([("x-unique-by", *field)].into_iter().collect());
        }
    }
    split_window(schemas);
    split_lock(schemas);
    split_values_query(schemas);
    split_durations(schemas);
    split_decision(schemas);
    allow_overlap(schemas);
    for (optional, named) in NAMED {
        if let Some(mut object) = object(schemas, optional) {
            replace(&mut object, "name", Ref::from_schema_name("Name"));
            object.required.push("name".to_owned());
            schemas.insert((*named).to_owned(), object.into());
        }
    }
    // An override of a set has no path that names it.
    if let Some(RefOr::T(Schema::Object(rule))) = schemas.get_mut("NewSetRule")
        && let Some(RefOr::T(Schema::Array(overrides))) = rule.properties.get_mut("overrides")
    {
        let named = Ref::from_schema_name("CreateOverride");
        overrides.items = ArrayItems::RefOrSchema(Box::new(named.into()));
    }
    add_rule_query(schemas);
    describe_messages(schemas);
    if let Some(event) = object(schemas, "NewEvent").and_then(|event| event.properties.get("event").cloned())
    {
        schemas.insert("EventText".to_owned(), event);
    }
    for schema in schemas.values_mut() {
        visit(schema, &mut write_out_range);
    }
}

/// Lists whose items must differ in one field: the type, its list, and the field of an item.
const UNIQUE: &[(&str, &str, &str)] = &[
    ("Hold", "changes", "limit_name"),
    ("Finalization", "changes", "limit_name"),
    ("NewLock", "locks", "key_values"),
    ("NewRuleSet", "rules", "name"),
    ("NewSetRule", "overrides", "name"),
    ("NewDecision", "checks", "name"),
    ("NewDecision", "holds", "limit_name"),
    ("NewDecision", "locks", "key_values"),
    ("CommitDecision", "checks", "name"),
    ("CommitDecision", "holds", "limit_name"),
    ("CommitItem", "checks", "name"),
    ("CommitItem", "holds", "limit_name"),
];

/// Types whose name is optional in a PUT, and the same types for a POST, which has no name in its path.
const NAMED: &[(&str, &str)] = &[("NewRule", "CreateRule"), ("NewOverride", "CreateOverride")];

/// Operations with a body of their own: the operation, and the schema of its body.
const BODIES: &[(&str, &str)] = &[
    ("create_rule", "CreateRule"),
    ("create_override", "CreateOverride"),
    ("query_rules", "RuleQuery"),
    ("only_once_event", "EventText"),
    ("strictly_once_event", "EventText"),
];

/// Operations in which every field of the body is optional, so that the body may be absent.
const OPTIONAL_BODIES: &[&str] = &[
    "patch_limit",
    "patch_rule",
    "patch_override",
    "query_rules",
    "query_overrides",
    "query_counters",
    "query_locks",
    "commit_decision",
    "rollback_decision",
    "heartbeat_decision",
];

/// Completes an operation: its parameters, and the schema of its body.
pub(super) fn complete_operation(operation: &mut Operation) {
    let id = operation.operation_id.clone().unwrap_or_default();
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter {
            complete_parameter(parameter, &id);
        }
    }
    if OPTIONAL_BODIES.contains(&id.as_str())
        && let Some(RefOr::T(body)) = &mut operation.request_body
    {
        body.required = Some(Required::False);
    }
    if let Some((_, name)) = BODIES.iter().find(|(operation, _)| *operation == id)
        && let Some(RefOr::T(body)) = &mut operation.request_body
    {
        for content in body.content.values_mut() {
            if let RefOr::T(content) = content {
                content.schema = Some(Ref::from_schema_name(*name).into());
            }
        }
    }
}

/// Printable ASCII. A key may have quotes around it; without them it must be a name.
const IDEMPOTENCY_KEY: &str = r#"^(?!(""|"?\.{1,2}"?)$)[!-~]([ -~]{0,254}[!-~])?$"#;

fn complete_parameter(parameter: &mut Parameter, operation: &str) {
    let integer = |least: u64, most: u64| {
        ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(least)).maximum(Some(most))
    };
    let schema: RefOr<Schema> = match (parameter.name.as_str(), operation) {
        ("limit", _) => integer(1, 1000).into(),
        ("after", "list_entries" | "list_locks" | "query_locks" | "list_decisions") => {
            integer(0, u64::MAX).into()
        }
        ("after", "query_counters") => integer(0, u32::MAX.into()).into(),
        ("after" | "session_id" | "owner", _)
        | ("namespace", "cluster")
        | ("limit_name", "list_operations") => Ref::from_schema_name("Name").into(),
        ("state", "list_decisions") => words(&["open"]).into(),
        ("state", _) => words(&["held"]).into(),
        ("order", _) => words(&["used"]).into(),
        ("older_than", _) => {
            let units = "^(0|(?!$)([0-9]{1,6}d)?([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?([0-9]{1,9}ms)?)$";
            ObjectBuilder::new().schema_type(Type::String).pattern(Some(units)).into()
        }
        ("force" | "dry_run", _) => ObjectBuilder::new().schema_type(Type::Boolean).into(),
        ("Last-Event-ID", _) => integer(0, u64::MAX).into(),
        ("Idempotency-Key", _) => {
            let key = ObjectBuilder::new().schema_type(Type::String).pattern(Some(IDEMPOTENCY_KEY));
            key.min_length(Some(1)).max_length(Some(256)).into()
        }
        _ if parameter.parameter_in == ParameterIn::Path => {
            parameter.required = Required::True;
            Ref::from_schema_name("Name").into()
        }
        _ => return,
    };
    parameter.schema = Some(schema);
}

/// Only a bucket has a burst.
fn split_window(schemas: &mut Schemas) {
    let Some(bucket) = object(schemas, "NewWindow") else { return };
    let mut plain = bucket.clone();
    replace(&mut plain, "type", words(&["fixed", "sliding"]));
    replace(&mut plain, "burst", nothing());
    let mut bucket = bucket;
    replace(&mut bucket, "type", words(&["bucket"]));
    one_of(schemas, "NewWindow", [plain, bucket]);
}

/// A request asks for one lock or for several.
fn split_lock(schemas: &mut Schemas) {
    let some: RefOr<Schema> = AllOfBuilder::new()
        .item(Ref::from_schema_name("KeyValues"))
        .item(ObjectBuilder::new().schema_type(Type::Object).min_properties(Some(1)))
        .into();
    if let Some(mut wanted) = object(schemas, "WantedLock") {
        replace(&mut wanted, "key_values", some.clone());
        schemas.insert("WantedLock".to_owned(), wanted.into());
    }
    let Some(one) = object(schemas, "NewLock") else { return };
    let mut several = one.clone();
    replace(&mut several, "key_values", nothing());
    replace(&mut several, "mode", nothing());
    if let Some(RefOr::T(Schema::Array(locks))) = several.properties.get_mut("locks") {
        locks.schema_type = SchemaType::Type(Type::Array);
    }
    several.required.push("locks".to_owned());
    let mut one = one;
    replace(&mut one, "key_values", some);
    replace(&mut one, "locks", nothing());
    one.required.push("key_values".to_owned());
    one_of(schemas, "NewLock", [one, several]);
}

/// Values are asked for as of an operation or as of a position, but not both.
fn split_values_query(schemas: &mut Schemas) {
    let Some(of_operation) = object(schemas, "ValuesQuery") else { return };
    let mut at_position = of_operation.clone();
    replace(&mut at_position, "operation_id", nothing());
    let mut of_operation = of_operation;
    replace(&mut of_operation, "position", nothing());
    let description = of_operation.description.take();
    let either = AnyOfBuilder::new().item(of_operation).item(at_position).description(description);
    schemas.insert("ValuesQuery".to_owned(), either.into());
}

/// Durations that a request must give, under one of two names: the type, and the name with units.
const REQUIRED_DURATIONS: &[(&str, &str)] = &[
    ("NewWindow", "per"),
    ("NewLease", "ttl"),
    ("NewLock", "ttl"),
    ("PutStream", "duration"),
    ("Extend", "expires_after"),
];

/// Durations that a request may give, under one of two names.
const OPTIONAL_DURATIONS: &[(&str, &[&str])] = &[
    ("NewLease", &["wait"]),
    ("NewLock", &["wait"]),
    ("PutStream", &["key_frame_every"]),
    ("Hold", &["expires_after"]),
    ("NewDecision", &["ttl", "wait"]),
];

/// A duration is given with units, or in milliseconds, but not both.
fn split_durations(schemas: &mut Schemas) {
    for (name, fields) in OPTIONAL_DURATIONS {
        if let Some(schema) = schemas.get_mut(*name) {
            let choices: Vec<[String; 2]> =
                fields.iter().map(|field| [(*field).to_owned(), format!("{field}_ms")]).collect();
            for object in forms_mut(schema) {
                object.extensions = Some([("x-at-most-one", choices.clone())].into_iter().collect());
            }
        }
    }
    for (name, field) in REQUIRED_DURATIONS {
        let Some(mut schema) = schemas.remove(*name) else { continue };
        let in_millis = format!("{field}_ms");
        let mut description = None;
        let mut forms = OneOfBuilder::new();
        for mut with_units in forms_mut(&mut schema).map(|form| form.clone()) {
            description = description.or(with_units.description.take());
            let mut with_millis = with_units.clone();
            if *name == "Extend" {
                // `null` is a value here: the holds never expire.
                with_units.properties.remove(&in_millis);
                with_millis.properties.remove(*field);
            } else {
                replace(&mut with_units, &in_millis, nothing());
                replace(&mut with_millis, field, nothing());
                if let Some(RefOr::T(Schema::Object(millis))) = with_millis.properties.get_mut(&in_millis) {
                    millis.schema_type = SchemaType::Type(Type::Integer);
                }
            }
            with_units.required.push((*field).to_owned());
            with_millis.required.push(in_millis.clone());
            forms = forms.item(with_units).item(with_millis);
        }
        if let RefOr::T(Schema::OneOf(split)) = &schema {
            description = description.or(split.description.clone());
        }
        schemas.insert((*name).to_owned(), forms.description(description).into());
    }
}

/// A decision has at least one part: a check, a hold, a lock or an event.
fn split_decision(schemas: &mut Schemas) {
    let Some(mut decision) = object(schemas, "NewDecision") else { return };
    let description = decision.description.take();
    let mut forms = AnyOfBuilder::new().description(description);
    for list in ["checks", "holds", "locks"] {
        let mut form = decision.clone();
        if let Some(RefOr::T(Schema::Array(parts))) = form.properties.get_mut(list) {
            parts.min_items = Some(1);
        }
        form.required.push(list.to_owned());
        forms = forms.item(form);
    }
    replace(&mut decision, "event", Ref::from_schema_name("DecisionEvent"));
    decision.required.push("event".to_owned());
    schemas.insert("NewDecision".to_owned(), forms.item(decision).into());
}

/// The results of batches of which one form is a problem document, and another one a problem document with known fields.
const OVERLAPPING: &[&str] = &["CheckResult", "DecisionResult"];

/// A value of these types may have several of their forms.
fn allow_overlap(schemas: &mut Schemas) {
    for name in OVERLAPPING {
        if let Some(RefOr::T(Schema::OneOf(forms))) = schemas.get(*name) {
            let any = AnyOfBuilder::new().description(forms.description.clone());
            let any = forms.items.iter().fold(any, |any, form| any.item(form.clone()));
            schemas.insert((*name).to_owned(), any.into());
        }
    }
}

/// The forms of a type, one or several.
fn forms_mut(schema: &mut RefOr<Schema>) -> impl Iterator<Item = &mut Object> {
    let forms: Vec<&mut Object> = match schema {
        RefOr::T(Schema::Object(object)) => vec![object],
        RefOr::T(Schema::OneOf(forms)) => {
            let objects = forms.items.iter_mut().filter_map(|form| match form {
                RefOr::T(Schema::Object(object)) => Some(object),
                _ => None,
            });
            objects.collect()
        }
        _ => Vec::new(),
    };
    forms.into_iter()
}

/// A query for rules can only test which keys a rule groups by.
fn add_rule_query(schemas: &mut Schemas) {
    let Some(mut query) = object(schemas, "Query") else { return };
    let exists = ObjectBuilder::new()
        .schema_type(Type::Object)
        .property(
            "exists",
            ObjectBuilder::new()
                .schema_type(Type::Boolean)
                .description(Some("Whether the rule groups by this key.")),
        )
        .required("exists")
        .additional_properties(Some(AdditionalProperties::FreeForm(false)));
    if let Some(RefOr::T(Schema::Object(selection))) = schemas.get("Selection") {
        let mut conditions = selection.clone();
        conditions.description = Some("Conditions on the `group_by` keys. All of them must hold.".to_owned());
        conditions.examples = Vec::new();
        conditions.additional_properties = Some(Box::new(AdditionalProperties::RefOr(exists.into())));
        let or_nothing = OneOfBuilder::new().item(nothing()).item(conditions);
        replace(&mut query, "where", or_nothing);
    }
    for list in ["any", "all"] {
        if let Some(RefOr::T(Schema::Array(array))) = query.properties.get_mut(list) {
            array.items = ArrayItems::RefOrSchema(Box::new(Ref::from_schema_name("RuleQuery").into()));
        }
    }
    schemas.insert("RuleQuery".to_owned(), query.into());
}

fn object(schemas: &Schemas, name: &str) -> Option<Object> {
    match schemas.get(name) {
        Some(RefOr::T(Schema::Object(object))) => Some(object.clone()),
        _ => None,
    }
}

/// Replaces the schema of a property, which keeps its description.
fn replace(object: &mut Object, property: &str, schema: impl Into<RefOr<Schema>>) {
    let mut schema = schema.into();
    let old = object.properties.get(property).and_then(description);
    match &mut schema {
        RefOr::Ref(reference) if reference.description.is_empty() => {
            reference.description = old.unwrap_or_default();
        }
        // A property that must be absent has nothing to say.
        RefOr::T(Schema::Object(new)) if new.schema_type != SchemaType::Type(Type::Null) => {
            new.description = new.description.take().or(old);
        }
        RefOr::T(Schema::AllOf(new)) => new.description = new.description.take().or(old),
        RefOr::T(Schema::OneOf(new)) => new.description = new.description.take().or(old),
        _ => {}
    }
    object.properties.insert(property.to_owned(), schema);
}

/// The description of a property. An optional property has it inside its first form.
fn description(schema: &RefOr<Schema>) -> Option<String> {
    match schema {
        RefOr::Ref(reference) => Some(reference.description.clone()).filter(|text| !text.is_empty()),
        RefOr::T(Schema::Object(object)) => object.description.clone(),
        RefOr::T(Schema::OneOf(forms)) => {
            forms.description.clone().or_else(|| forms.items.iter().find_map(description))
        }
        _ => None,
    }
}

/// The field by which a message says what it is comes from an attribute, so it has no comment.
fn describe_messages(schemas: &mut Schemas) {
    let Some(RefOr::T(Schema::OneOf(messages))) = schemas.get_mut("Message") else { return };
    for message in &mut messages.items {
        if let RefOr::T(Schema::Object(message)) = message
            && let Some(RefOr::T(Schema::Object(word))) = message.properties.get_mut("messageType")
        {
            word.description = Some("What happened.".to_owned());
        }
    }
}

fn one_of(schemas: &mut Schemas, name: &str, forms: [Object; 2]) {
    let description = forms[0].description.clone();
    let forms = forms.into_iter().fold(OneOfBuilder::new(), |builder, mut form| {
        form.description = None;
        builder.item(form)
    });
    schemas.insert(name.to_owned(), forms.description(description).into());
}

fn words(words: &[&str]) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words.iter().copied()))
}

/// A field that must be `null` or absent.
fn nothing() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Null)
}

/// To JSON Schema a format is only a note, so the range of an integer is written out.
fn write_out_range(object: &mut Object) {
    let Some(SchemaFormat::KnownFormat(format)) = &object.format else { return };
    let is_unsigned = match object.minimum {
        Some(Number::Int(least)) => least >= 0,
        Some(Number::UInt(_)) => true,
        Some(Number::Float(least)) => least >= 0.0,
        None => false,
    };
    let (least, most) = match format {
        KnownFormat::Int32 => {
            (i64::from(i32::MIN), u64::from(if is_unsigned { u32::MAX } else { i32::MAX as u32 }))
        }
        KnownFormat::Int64 => (i64::MIN, if is_unsigned { u64::MAX } else { i64::MAX as u64 }),
        _ => return,
    };
    if object.minimum.is_none() {
        object.minimum = Some(least.into());
    }
    if object.maximum.is_none() {
        object.maximum = Some(most.into());
    }
    // The formats are those of signed integers.
    if is_unsigned {
        object.format = None;
    }
}

/// Visits an object and all objects inside it.
fn visit(schema: &mut RefOr<Schema>, visitor: &mut impl FnMut(&mut Object)) {
    let RefOr::T(schema) = schema else { return };
    match schema {
        Schema::Object(object) => {
            visitor(object);
            object.properties.values_mut().for_each(|property| visit(property, visitor));
            if let Some(AdditionalProperties::RefOr(other)) = object.additional_properties.as_deref_mut() {
                visit(other, visitor);
            }
        }
        Schema::Array(Array { items: ArrayItems::RefOrSchema(items), .. }) => visit(items, visitor),
        Schema::OneOf(forms) => forms.items.iter_mut().for_each(|form| visit(form, visitor)),
        Schema::AllOf(forms) => forms.items.iter_mut().for_each(|form| visit(form, visitor)),
        Schema::AnyOf(forms) => forms.items.iter_mut().for_each(|form| visit(form, visitor)),
        _ => {}
    }
}
