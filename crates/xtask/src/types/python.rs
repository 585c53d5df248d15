//! Writes types in Python: a `msgspec.Struct` for each object.

use super::{
    model::{Field, Model, Record, Shape, Type},
    text::{FIRST_LINE, wrap},
};

pub(super) fn write(models: &[Model], given: &[&str]) -> Result<String, String> {
    let mut text = String::new();
    // A class may be used before its line, because annotations are evaluated late. An alias is evaluated at its line.
    let (aliases, classes): (Vec<_>, Vec<_>) =
        models.iter().partition(|model| matches!(model.shape, Shape::Alias(_)));
    for model in classes {
        if let Shape::Record(record) = &model.shape {
            text += &class(model, record).map_err(|problem| format!("the type {}: {problem}", model.name))?;
        }
    }
    text.push('\n');
    for model in aliases {
        if let Shape::Alias(kind) = &model.shape {
            text += &format!("\n{} = {}\n{}", model.name, annotation(kind), docstring(&model.about, ""));
        }
    }
    let names: Vec<String> = models.iter().map(|model| format!("    {:?},\n", model.name)).collect();
    Ok(format!("{}{text}\n__all__ = [\n{}]\n", head(&text, given), names.concat()))
}

/// What stands before the types: only what they use is imported.
fn head(types: &str, given: &[&str]) -> String {
    let uses = |sign: &str| types.contains(sign);
    let typing: Vec<&str> = [("Any", "Mapping[str, Any]"), ("Literal", "Literal[")]
        .iter()
        .filter(|(_, sign)| uses(sign))
        .map(|(name, _)| *name)
        .collect();
    let mut imports = String::new();
    if uses("Mapping[") {
        imports += "from collections.abc import Mapping\n";
    }
    if !typing.is_empty() {
        imports += &format!("from typing import {}\n", typing.join(", "));
    }
    format!(
        "# {FIRST_LINE}\n\"\"\"The requests and replies of the HTTP interface.\"\"\"\n\n\
         from __future__ import annotations\n\n{imports}\n\
         from msgspec import Struct\n\n\
         from ._wire import {}\n",
        given.join(", ")
    )
}

fn class(model: &Model, record: &Record) -> Result<String, String> {
    let Model { name, about, .. } = model;
    let fields: Vec<&Field> =
        record.fields.iter().filter(|field| Some(&field.name) != record.tag.as_ref()).collect();
    if let Some(field) = fields.iter().find(|field| !is_identifier(&field.name)) {
        return Err(format!("{} cannot be the name of a field in Python", field.name));
    }
    let about = match about.is_empty() {
        true => String::new(),
        false => docstring(about, "    ") + "\n",
    };
    if !record.is_request {
        let tag = tag_of(record).map(|tag| format!(", {tag}")).unwrap_or_default();
        let body: String = fields.iter().map(|field| line(field, reply_default(field))).collect();
        return Ok(format!("\n\nclass {name}(Struct, frozen=True, kw_only=True{tag}):\n{about}{body}"));
    }
    let (required, optional): (Vec<_>, Vec<_>) = fields.into_iter().partition(|field| field.is_required);
    let required: String = required.into_iter().map(|field| line(field, None)).collect();
    let optional: String = optional.into_iter().map(|field| line(field, Some("None"))).collect();
    // Required fields may be given by their place. The others have no place that stays the same when fields are added.
    const OPTIONS: &str = "frozen=True, omit_defaults=True";
    Ok(match (required.is_empty(), optional.is_empty()) {
        (false, false) => format!(
            "\n\nclass _{name}(Struct, {OPTIONS}):\n{required}\n\n\
             class {name}(_{name}, {OPTIONS}, kw_only=True):\n{about}{optional}"
        ),
        (true, _) => format!("\n\nclass {name}(Struct, {OPTIONS}, kw_only=True):\n{about}{optional}"),
        (_, true) => format!("\n\nclass {name}(Struct, {OPTIONS}):\n{about}{required}"),
    })
}

fn tag_of(record: &Record) -> Option<String> {
    let tag = record.tag.as_ref()?;
    let field = record.fields.iter().find(|field| field.name == *tag)?;
    match &field.kind {
        Type::Words(words) => Some(format!("tag_field={tag:?}, tag={:?}", words.first()?)),
        _ => None,
    }
}

/// What can be absent in an answer that a test makes up, or that an older server sends.
fn reply_default(field: &Field) -> Option<&'static str> {
    match &field.kind {
        Type::Union(kinds) if kinds.contains(&Type::Null) => Some("None"),
        Type::List(_) => Some("[]"),
        _ if !field.is_required => Some("None"),
        _ => None,
    }
}

fn line(field: &Field, default: Option<&str>) -> String {
    let mut kind = annotation(&field.kind);
    if default == Some("None") && !kind.ends_with("None") {
        kind += " | None";
    }
    let default = default.map(|default| format!(" = {default}")).unwrap_or_default();
    format!("    {}: {kind}{default}\n{}", field.name, docstring(&field.about, "    "))
}

fn annotation(kind: &Type) -> String {
    match kind {
        Type::Null => "None".into(),
        Type::Boolean => "bool".into(),
        Type::Integer { .. } => "int".into(),
        Type::Number => "float".into(),
        Type::String => "str".into(),
        Type::Words(words) => {
            let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
            format!("Literal[{}]", words.join(", "))
        }
        Type::List(item) => format!("list[{}]", annotation(item)),
        Type::Map(value) => format!("Mapping[str, {}]", annotation(value)),
        Type::Any => "Any".into(),
        Type::Named(name) => name.clone(),
        Type::Record(_) => "Mapping[str, Any]".into(),
        Type::Union(kinds) => kinds.iter().map(annotation).collect::<Vec<_>>().join(" | "),
    }
}

fn docstring(about: &str, margin: &str) -> String {
    let about = about.replace('\\', "\\\\").replace("\"\"\"", "'''");
    match &wrap(&about, 118)[..] {
        [] => String::new(),
        [line] => format!("{margin}\"\"\"{line}\"\"\"\n"),
        [first, rest @ ..] => {
            let rest: String = rest.iter().map(|line| format!("{margin}{line}\n")).collect();
            format!("{margin}\"\"\"{first}\n{rest}{margin}\"\"\"\n")
        }
    }
}

fn is_identifier(name: &str) -> bool {
    const KEYWORDS: &[&str] = &[
        "and", "as", "class", "def", "from", "global", "if", "import", "in", "is", "lambda", "not", "or",
        "with",
    ];
    name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_') && !KEYWORDS.contains(&name)
}
