//! The schemas of `docs/openapi.json` as types, before any language writes them down.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A type with a name.
#[derive(Debug, PartialEq)]
pub(super) struct Model {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) shape: Shape,
}

#[derive(Debug, PartialEq)]
pub(super) enum Shape {
    Record(Record),
    Alias(Type),
}

/// An object with known fields: first the required ones in the document's order, then the others by name.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Record {
    pub(super) fields: Vec<Field>,
    /// A request may have no other fields. A reply may have more of them in a newer version of the server.
    pub(super) is_request: bool,
    /// Fields of which a request must have all of at least one entry. Empty: only the fields that are always required.
    pub(super) one_of: Vec<Vec<Field>>,
    /// For an alternative of a tagged union: the field that says which alternative it is.
    pub(super) tag: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) is_required: bool,
    pub(super) kind: Type,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Null,
    Boolean,
    /// `is_large`: values beyond 2^53 occur, which JavaScript's numbers would round.
    Integer {
        is_large: bool,
    },
    Number,
    String,
    /// One of these strings.
    Words(Vec<String>),
    List(Box<Type>),
    Map(Box<Type>),
    /// Any JSON.
    Any,
    Named(String),
    /// An object without a name.
    Record(Vec<Field>),
    /// At least two alternatives; `Null` is the last one.
    Union(Vec<Type>),
}

/// What a package wants from the document.
pub(super) struct Wanted<'a> {
    /// Schemas and the names of their types in this package. The schemas that they use are included.
    pub(super) schemas: &'a [(&'a str, &'a str)],
    /// Schemas whose types the package has itself, under the same names.
    pub(super) given: &'a [&'a str],
}

/// Reads the wanted schemas of an OpenAPI document, and those that they use. The result is ordered by name.
pub(super) fn read(openapi: &str, wanted: &Wanted<'_>) -> Result<Vec<Model>, String> {
    let document: Value = serde_json::from_str(openapi).map_err(|error| error.to_string())?;
    let mut reader = Reader {
        schemas: &document["components"]["schemas"],
        wanted,
        unread: wanted.schemas.iter().map(|(schema, _)| (*schema).to_owned()).collect(),
    };
    let mut read = BTreeSet::new();
    let mut models = BTreeMap::new();
    while let Some(schema) = reader.unread.pop_first() {
        if !read.insert(schema.clone()) {
            continue;
        }
        let found = reader.models(&schema).map_err(|problem| format!("the schema {schema}: {problem}"))?;
        for model in found {
            if let Some(other) = models.insert(model.name.clone(), model) {
                return Err(format!("two types have the name {}", other.name));
            }
        }
    }
    Ok(models.into_values().collect())
}

struct Reader<'a> {
    schemas: &'a Value,
    wanted: &'a Wanted<'a>,
    unread: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    /// The type of a schema. A tagged union has more: one for each of its alternatives.
    fn models(&mut self, name: &str) -> Result<Vec<Model>, String> {
        let schema = self.schema(name)?;
        let mut models = Vec::new();
        let shape = match alternatives(schema) {
            Some(all) if all.iter().all(|alternative| alternative.get("properties").is_some()) => {
                match tag_of(all) {
                    Some(tag) => {
                        models = self.tagged(all, tag)?;
                        let named = models.iter().map(|model| Type::Named(model.name.clone()));
                        Shape::Alias(union(named.collect()))
                    }
                    None => Shape::Record(self.one_of(all)?),
                }
            }
            _ => match self.kind(schema)? {
                Type::Record(fields) => {
                    Shape::Record(Record { fields, is_request: is_closed(schema), ..Record::default() })
                }
                kind => Shape::Alias(kind),
            },
        };
        models.push(Model { name: self.name(name), about: description(schema), shape });
        Ok(models)
    }

    fn schema(&self, name: &str) -> Result<&'a Value, String> {
        self.schemas.get(name).ok_or_else(|| format!("docs/openapi.json has no schema {name}"))
    }

    /// The name of a schema's type in the package.
    fn name(&self, schema: &str) -> String {
        let renamed = self.wanted.schemas.iter().find(|(name, _)| *name == schema);
        renamed.map_or(schema, |(_, name)| name).to_owned()
    }

    fn kind(&mut self, schema: &Value) -> Result<Type, String> {
        if let Some(name) = reference(schema) {
            return self.referred(name);
        }
        if let Some(words) = schema["enum"].as_array()
            && let Some(words) = words.iter().map(|word| word.as_str().map(str::to_owned)).collect()
        {
            return Ok(Type::Words(words));
        }
        if let Some(all) = alternatives(schema) {
            let kept = all.iter().filter(|alternative| !is_typed_value(alternative));
            return Ok(union(kept.map(|alternative| self.kind(alternative)).collect::<Result<_, _>>()?));
        }
        if let Some(parts) = schema["allOf"].as_array() {
            return self.all_of(parts);
        }
        match &schema["type"] {
            Value::String(name) => self.basic(name, schema),
            Value::Array(names) => {
                let names = names.iter().filter_map(Value::as_str);
                Ok(union(names.map(|name| self.basic(name, schema)).collect::<Result<_, _>>()?))
            }
            _ => Ok(Type::Any),
        }
    }

    fn basic(&mut self, name: &str, schema: &Value) -> Result<Type, String> {
        Ok(match name {
            "null" => Type::Null,
            "boolean" => Type::Boolean,
            "integer" => Type::Integer { is_large: is_large(schema) },
            "number" => Type::Number,
            "string" => Type::String,
            "array" => Type::List(Box::new(self.kind(&schema["items"])?)),
            "object" if schema.get("properties").is_some() => Type::Record(self.fields(schema)?),
            "object" => match &schema["additionalProperties"] {
                Value::Object(_) => Type::Map(Box::new(self.kind(&schema["additionalProperties"])?)),
                _ => Type::Map(Box::new(Type::Any)),
            },
            other => return Err(format!("the type {other} is unknown")),
        })
    }

    /// A schema that only limits a basic type, such as the length of a string, gets no type of its own.
    fn referred(&mut self, name: &str) -> Result<Type, String> {
        if self.wanted.given.contains(&name) {
            return Ok(Type::Named(name.to_owned()));
        }
        let schema = self.schema(name)?;
        let is_basic = |schema: &Value| {
            schema.get("enum").is_none()
                && matches!(schema["type"].as_str(), Some("string" | "integer" | "number" | "boolean"))
        };
        if is_basic(schema) || alternatives(schema).is_some_and(|all| all.iter().all(is_basic)) {
            return self.kind(schema);
        }
        self.unread.insert(name.to_owned());
        Ok(Type::Named(self.name(name)))
    }

    fn fields(&mut self, schema: &Value) -> Result<Vec<Field>, String> {
        let properties = schema["properties"].as_object().ok_or("an object without properties")?;
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let optional: BTreeSet<&str> =
            properties.keys().map(String::as_str).filter(|name| !required.contains(name)).collect();
        let named =
            required.iter().map(|name| (*name, true)).chain(optional.iter().map(|name| (*name, false)));
        named
            .map(|(name, is_required)| {
                let property =
                    properties.get(name).ok_or_else(|| format!("the required field {name} is missing"))?;
                let about = std::iter::once(property).chain(alternatives(property).into_iter().flatten());
                let about = about.map(description).find(|about| !about.is_empty()).unwrap_or_default();
                let kind = match is_counted_by_server(name) {
                    true => exact(self.kind(property)?),
                    false => self.kind(property)?,
                };
                Ok(Field { name: name.to_owned(), about, is_required, kind })
            })
            .collect()
    }

    /// All parts at once: the fields of all of them. Parts that have no fields, but only limit another part, say nothing
    /// about the type.
    fn all_of(&mut self, parts: &[Value]) -> Result<Type, String> {
        let telling: Vec<&Value> = parts
            .iter()
            .filter(|part| reference(part).is_some() || part.get("properties").is_some())
            .collect();
        if let [part] = telling[..] {
            return self.kind(part);
        }
        let mut fields: Vec<Field> = Vec::new();
        for part in telling {
            let schema = reference(part).map_or(Ok(part), |name| self.schema(name))?;
            match self.kind(schema)? {
                Type::Record(more) => fields.extend(more),
                _ => return Err("`allOf` with a part that is no object".into()),
            }
        }
        fields.sort_by_key(|field| !field.is_required);
        Ok(Type::Record(fields))
    }

    /// One object for alternatives that differ only in which fields they require.
    fn one_of(&mut self, all: &[Value]) -> Result<Record, String> {
        let read = all.iter().map(|alternative| self.fields(alternative)).collect::<Result<Vec<_>, _>>()?;
        let mut fields: Vec<Field> = Vec::new();
        for field in read.iter().flatten() {
            match fields.iter_mut().find(|known| known.name == field.name) {
                Some(known) => {
                    known.kind = union(vec![known.kind.clone(), field.kind.clone()]);
                    if known.about.is_empty() {
                        known.about.clone_from(&field.about);
                    }
                }
                None => fields.push(field.clone()),
            }
        }
        let has = |alternative: &[Field], name: &str| {
            alternative.iter().any(|field| field.is_required && field.name == name)
        };
        for field in &mut fields {
            field.is_required = read.iter().all(|alternative| has(alternative, &field.name));
        }
        fields.sort_by(|a, b| (!a.is_required, &a.name).cmp(&(!b.is_required, &b.name)));
        let mut one_of: Vec<Vec<Field>> = Vec::new();
        for alternative in &read {
            let always = |name: &str| read.iter().all(|other| has(other, name));
            let own: Vec<Field> = alternative
                .iter()
                .filter(|field| field.is_required && !always(&field.name))
                .cloned()
                .collect();
            if !own.is_empty() && !one_of.contains(&own) {
                one_of.push(own);
            }
        }
        Ok(Record { fields, is_request: all.iter().all(is_closed), one_of, tag: None })
    }

    fn tagged(&mut self, all: &[Value], tag: &str) -> Result<Vec<Model>, String> {
        let model = |alternative: &Value| {
            let word = only_word(alternative, tag).ok_or("an alternative without its tag")?;
            let record = Record {
                fields: self.fields(alternative)?,
                is_request: is_closed(alternative),
                one_of: Vec::new(),
                tag: Some(tag.to_owned()),
            };
            Ok(Model {
                name: pascal_case(word),
                about: description(alternative),
                shape: Shape::Record(record),
            })
        };
        all.iter().map(model).collect()
    }
}

fn reference(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/components/schemas/")
}

fn alternatives(schema: &Value) -> Option<&[Value]> {
    schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array().map(Vec::as_slice)
}

fn description(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().to_owned()
}

/// The typed values of the first documents (`{"DataType": 3, "Value": "7"}`) are another way to write a key-value in a
/// request. Types for new programs leave them out.
fn is_typed_value(schema: &Value) -> bool {
    schema["properties"].get("DataType").is_some()
}

fn is_closed(schema: &Value) -> bool {
    schema["additionalProperties"] == Value::Bool(false)
}

/// Whether numbers beyond 2^53 are valid.
fn is_large(schema: &Value) -> bool {
    const EXACT: u64 = (1 << 53) - 1;
    let is_beyond =
        |bound: &Value| bound.as_i64().map_or(bound.is_u64(), |bound| bound.unsigned_abs() > EXACT);
    is_beyond(&schema["maximum"]) || is_beyond(&schema["minimum"])
}

/// The server counts milliseconds, positions and the like itself, so they stay below 2^53, although the document does not
/// say so.
fn is_counted_by_server(field: &str) -> bool {
    const NAMES: &[&str] = &["time", "clock", "epoch", "fencing_token", "position", "overrides", "rules"];
    NAMES.contains(&field) || ["_ms", "_at", "_position"].iter().any(|ending| field.ends_with(ending))
}

fn exact(kind: Type) -> Type {
    match kind {
        Type::Integer { .. } => Type::Integer { is_large: false },
        Type::Union(kinds) => Type::Union(kinds.into_iter().map(exact).collect()),
        kind => kind,
    }
}

/// The field that has another single value in each alternative.
fn tag_of(all: &[Value]) -> Option<&str> {
    let candidates = all.first()?["properties"].as_object()?.keys();
    candidates.map(String::as_str).find(|name| {
        let words: Option<BTreeSet<&str>> =
            all.iter().map(|alternative| only_word(alternative, name)).collect();
        words.is_some_and(|words| words.len() == all.len())
    })
}

fn only_word<'a>(schema: &'a Value, field: &str) -> Option<&'a str> {
    match schema["properties"][field]["enum"].as_array()?.as_slice() {
        [word] => word.as_str(),
        _ => None,
    }
}

/// `KEY_FRAME` → `KeyFrame`
fn pascal_case(word: &str) -> String {
    let capitalized = |part: &str| {
        let (first, rest) = part.split_at(part.len().min(1));
        format!("{}{}", first.to_uppercase(), rest.to_lowercase())
    };
    word.split('_').map(capitalized).collect()
}

fn union(kinds: Vec<Type>) -> Type {
    let mut all: Vec<Type> = Vec::new();
    for kind in kinds {
        let parts = match kind {
            Type::Union(parts) => parts,
            kind => vec![kind],
        };
        for part in parts {
            add(&mut all, part);
        }
    }
    all.sort_by_key(|kind| *kind == Type::Null);
    match all.len() {
        1 => all.remove(0),
        _ => Type::Union(all),
    }
}

/// Adds an alternative to a union. Words join other words.
fn add(all: &mut Vec<Type>, part: Type) {
    if let Type::Words(more) = &part
        && let Some(Type::Words(words)) = all.iter_mut().find(|known| matches!(known, Type::Words(_)))
    {
        words.extend(more.iter().filter(|word| !words.contains(word)).cloned().collect::<Vec<_>>());
    } else if !all.contains(&part) {
        all.push(part);
    }
}
