//! The fields of a body, from its schema: what a reader has to know, without the details that only programs need.

use super::html::{attribute, escape, inline};
use serde_json::{Map, Value};

/// A field of a body, or a parameter of a request.
pub(super) struct Field {
    pub(super) name: String,
    /// The type, as HTML.
    pub(super) kind: String,
    pub(super) is_required: bool,
    pub(super) text: String,
    pub(super) children: Vec<Field>,
}

/// Types that the chapter of conventions explains once: the schema, its word, and its section.
const EXPLAINED: [(&str, &str, &str); 6] = [
    ("Name", "name", "names"),
    ("KeyValues", "key-values", "key-values"),
    ("KeyValue", "value", "key-values"),
    ("Selection", "selection", "selections"),
    ("Tests", "tests", "selections"),
    ("Context", "texts by name", "names"),
];

/// The schemas of the OpenAPI document.
pub(super) struct Schemas<'a>(pub(super) &'a Map<String, Value>);

/// One field with all schemas that the forms of its object give it.
struct Collected<'a> {
    name: &'a str,
    schemas: Vec<&'a Value>,
    is_required: bool,
}

impl<'a> Schemas<'a> {
    /// The fields of a body. Those in the sample come first, in its order; the others follow, the required ones first.
    pub(super) fn fields(&self, schema: &'a Value, sample: &str) -> Vec<Field> {
        self.fields_below(schema, sample, &mut reference(schema).into_iter().collect())
    }

    /// A parameter of the path, the query or the header.
    pub(super) fn parameter(&self, parameter: &'a Value) -> Field {
        let schema = &parameter["schema"];
        Field {
            name: text(parameter, "name").to_owned(),
            kind: self.kind(schema),
            is_required: parameter["required"] == true,
            text: text(parameter, "description").to_owned(),
            children: Vec::new(),
        }
    }

    /// `path` has the names of the types around this one: a type that contains itself is not repeated.
    fn fields_below(&self, schema: &'a Value, sample: &str, path: &mut Vec<&'a str>) -> Vec<Field> {
        let mut collected = self.collect(schema);
        let place = |name: &str| sample.find(&format!("\"{name}\":")).unwrap_or(usize::MAX);
        // A duration in milliseconds stands beside the one with units.
        let stem = |name: &'a str| name.strip_suffix("_ms").unwrap_or(name);
        collected.sort_by_key(|field| {
            let place = place(field.name).min(place(stem(field.name)));
            (place, !field.is_required, stem(field.name), field.name)
        });
        collected
            .iter()
            .map(|field| Field {
                name: field.name.to_owned(),
                kind: self.kind_of_all(&field.schemas),
                is_required: field.is_required,
                text: field
                    .schemas
                    .iter()
                    .find_map(|schema| self.description(schema))
                    .unwrap_or_default()
                    .to_owned(),
                children: self.children(&field.schemas, sample, path),
            })
            .collect()
    }

    fn children(&self, schemas: &[&'a Value], sample: &str, path: &mut Vec<&'a str>) -> Vec<Field> {
        let mut fields = Vec::new();
        for schema in schemas {
            let Some((name, inner)) = self.inner_object(schema) else { continue };
            if !name.is_empty() && path.contains(&name) {
                continue;
            }
            path.push(name);
            for field in self.fields_below(inner, sample, path) {
                if !fields.iter().any(|known: &Field| known.name == field.name) {
                    fields.push(field);
                }
            }
            path.pop();
        }
        fields
    }

    /// The object that a field contains, directly or in a list, with the name of its type.
    fn inner_object(&self, schema: &'a Value) -> Option<(&'a str, &'a Value)> {
        if let Some(name) = reference(schema) {
            let is_explained = EXPLAINED.iter().any(|(explained, ..)| *explained == name);
            let target = self.0.get(name)?;
            return match is_explained || target["type"] == "string" {
                true => None,
                false => self
                    .inner_object(target)
                    .map(|(inner, object)| (if inner.is_empty() { name } else { inner }, object)),
            };
        }
        if let Some(items) = schema.get("items") {
            return self.inner_object(items);
        }
        if schema.get("properties").is_some() {
            return Some(("", schema));
        }
        let parts = parts(schema);
        match &parts[..] {
            [] => None,
            [only] => self.inner_object(only),
            _ => parts.iter().any(|part| self.inner_object(part).is_some()).then_some(("", schema)),
        }
    }

    /// The fields of an object. A type with several forms has the fields of all of them; required are those that all require.
    fn collect(&self, schema: &'a Value) -> Vec<Collected<'a>> {
        let schema = self.resolve(schema);
        let mut collected: Vec<Collected<'a>> = Vec::new();
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            let required: Vec<&str> =
                schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            // A field that must be `null` belongs to another form.
            for (name, property) in properties.iter().filter(|(_, property)| property["type"] != "null") {
                collected.push(Collected {
                    name,
                    schemas: vec![property],
                    is_required: required.contains(&name.as_str()),
                });
            }
        }
        let is_choice = schema.get("oneOf").or(schema.get("anyOf")).is_some();
        let parts = parts(schema);
        let forms: Vec<Vec<Collected<'a>>> = parts.iter().map(|part| self.collect(part)).collect();
        let required_by_all = |name: &str| {
            forms.iter().all(|form| form.iter().any(|field| field.name == name && field.is_required))
        };
        for field in forms.iter().flatten() {
            let is_required = if is_choice { required_by_all(field.name) } else { field.is_required };
            match collected.iter_mut().find(|known| known.name == field.name) {
                Some(known) => {
                    known.schemas.extend(&field.schemas);
                    known.is_required |= is_required;
                }
                None => collected.push(Collected {
                    name: field.name,
                    schemas: field.schemas.clone(),
                    is_required,
                }),
            }
        }
        collected
    }

    fn resolve(&self, mut schema: &'a Value) -> &'a Value {
        while let Some(target) = reference(schema).and_then(|name| self.0.get(name)) {
            schema = target;
        }
        schema
    }

    /// The description beside a field, or inside its only form, or that of its type.
    fn description(&self, schema: &'a Value) -> Option<&'a str> {
        let own = schema["description"].as_str();
        own.or_else(|| parts(schema).iter().find_map(|part| part["description"].as_str())).or_else(|| {
            reference(schema).and_then(|name| self.0.get(name)).and_then(|target| self.description(target))
        })
    }

    fn kind_of_all(&self, schemas: &[&'a Value]) -> String {
        let mut kinds: Vec<String> = Vec::new();
        for schema in schemas {
            for kind in self.kinds(schema) {
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
        }
        // Null is the last thing that a reader asks for.
        kinds.sort_by_key(|kind| kind == "null");
        kinds.join(" or ")
    }

    /// The type in words, as HTML.
    pub(super) fn kind(&self, schema: &'a Value) -> String {
        self.kind_of_all(&[schema])
    }

    fn kinds(&self, schema: &'a Value) -> Vec<String> {
        if let Some(name) = reference(schema) {
            if let Some((_, word, section)) = EXPLAINED.iter().find(|(explained, ..)| *explained == name) {
                return vec![format!("<a href=\"#{section}\">{word}</a>")];
            }
            return self.0.get(name).map(|target| self.kinds(target)).unwrap_or_default();
        }
        if is_duration(schema) {
            return vec!["<a href=\"#durations\">duration</a>".to_owned()];
        }
        let parts = all_parts(schema);
        if !parts.is_empty() {
            // Of types that demand more of the same thing, the first one says what it is.
            let count = if schema.get("allOf").is_some() { 1 } else { parts.len() };
            let mut kinds: Vec<String> = Vec::new();
            for kind in parts.iter().take(count).flat_map(|part| self.kinds(part)) {
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
            return kinds;
        }
        if let Some(words) = schema["enum"].as_array() {
            return words.iter().map(|word| format!("<code>{}</code>", escape(&word.to_string()))).collect();
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => vec!["any value"],
        };
        types.into_iter().map(|word| self.simple_kind(schema, word)).collect()
    }

    fn simple_kind(&self, schema: &'a Value, word: &str) -> String {
        match word {
            "array" => {
                let most = schema["maxItems"].as_u64().map(|most| format!(", at most {most}"));
                format!("list of {}{}", plural(&self.kind(&schema["items"])), most.unwrap_or_default())
            }
            "object" => match schema.get("additionalProperties").filter(|other| other.is_object()) {
                Some(other) => format!("object of {}", plural(&self.kind(other))),
                None => word.to_owned(),
            },
            "integer" => format!("integer{}", range(schema)),
            "string" => match schema["x-max-bytes"].as_u64() {
                Some(most) => format!("string, at most {most} bytes"),
                None => word.to_owned(),
            },
            other => escape(other),
        }
    }
}

fn plural(kind: &str) -> String {
    match kind {
        "object" | "string" | "integer" => format!("{kind}s"),
        other => other.to_owned(),
    }
}

/// The range of an integer, where it is not just that of its type.
fn range(schema: &Value) -> String {
    const LARGEST_EXACT: u64 = (1 << 53) - 1;
    let least = schema["minimum"].as_i64().filter(|least| *least != i64::MIN && *least != 0);
    let most =
        schema["maximum"].as_u64().filter(|most| *most < LARGEST_EXACT && *most != u64::from(u32::MAX));
    match (least, most) {
        (_, Some(most)) => format!(", {}–{most}", schema["minimum"].as_i64().unwrap_or_default()),
        (Some(least), None) if least > -(LARGEST_EXACT as i64) => format!(", at least {least}"),
        _ => String::new(),
    }
}

fn is_duration(schema: &Value) -> bool {
    let is_text = |schema: &Value| schema.get("x-range-ms").is_some();
    is_text(schema) || all_parts(schema).first().is_some_and(|first| is_text(first))
}

/// The parts or forms of a type.
fn all_parts(schema: &Value) -> Vec<&Value> {
    ["oneOf", "anyOf", "allOf"].iter().filter_map(|word| schema[*word].as_array()).flatten().collect()
}

/// The same without the form `null`.
fn parts(schema: &Value) -> Vec<&Value> {
    all_parts(schema).into_iter().filter(|part| part["type"] != "null").collect()
}

/// The name of the type that a schema refers to.
fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/components/schemas/")
}

/// A text of an object, empty if it is absent.
pub(super) fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or_default()
}

/// A list of fields, each with an address of its own below `id`.
pub(super) fn list(fields: &[Field], id: &str) -> String {
    let is_ignored = |field: &&Field| field.text.starts_with("Ignored:");
    let mut html = "<ul class=\"fields\">".to_owned();
    for field in fields.iter().filter(|field| !is_ignored(field)) {
        let Field { name, kind, is_required, text, children } = field;
        let (id, name) = (format!("{id}.{}", attribute(name)), escape(name));
        html += &format!(
            "<li id=\"{id}\"><a href=\"#{id}\"><code>{name}</code></a> <span class=\"kind\">{kind}</span>{}<p>{}</p>",
            if *is_required { " <em>required</em>" } else { "" },
            inline(text),
        );
        if !children.is_empty() {
            html += &list(children, &id);
        }
        html += "</li>\n";
    }
    let ignored: Vec<String> = fields
        .iter()
        .filter(is_ignored)
        .map(|Field { name, .. }| format!("<code id=\"{id}.{}\">{}</code>", attribute(name), escape(name)))
        .collect();
    if !ignored.is_empty() {
        html += &format!(
            "<li class=\"ignored\"><p>Ignored, so that an answer can be sent back: {}.</p></li>",
            ignored.join(", ")
        );
    }
    html + "</ul>"
}
