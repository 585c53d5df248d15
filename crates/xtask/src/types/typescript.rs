//! Writes types in TypeScript.

use super::{
    model::{Field, Model, Record, Shape, Type},
    text::{FIRST_LINE, wrap},
};

pub(super) struct Dialect {
    /// The lines that import the types that the package has itself.
    pub(super) imports: &'static str,
    /// The type of integers that may be beyond 2^53.
    pub(super) large_integer: &'static str,
}

pub(super) fn write(models: &[Model], dialect: &Dialect) -> String {
    let mut text = format!("// {FIRST_LINE}\n");
    if !dialect.imports.is_empty() {
        text += &format!("{}\n", dialect.imports);
    }
    for model in models {
        text += &format!("\n{}", comment(&model.about, ""));
        text += &match &model.shape {
            Shape::Alias(kind) => format!("export type {} = {};\n", model.name, dialect.kind(kind)),
            Shape::Record(record) => dialect.record(&model.name, record),
        };
    }
    text
}

impl Dialect {
    fn record(&self, name: &str, record: &Record) -> String {
        let mut fields = String::new();
        for field in &record.fields {
            fields += &format!("{}  {};\n", comment(&field.about, "  "), self.field(field));
        }
        if record.one_of.is_empty() {
            return format!("export interface {name} {{\n{fields}}}\n");
        }
        let one_of: Vec<String> = record.one_of.iter().map(|fields| self.inline(fields)).collect();
        format!("export type {name} = {{\n{fields}}} & ({});\n", one_of.join(" | "))
    }

    fn field(&self, field: &Field) -> String {
        let is_identifier = field.name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
        let name = if is_identifier { field.name.clone() } else { format!("{:?}", field.name) };
        let mark = if field.is_required { "" } else { "?" };
        format!("{name}{mark}: {}", self.kind(&field.kind))
    }

    fn inline(&self, fields: &[Field]) -> String {
        let fields: Vec<String> = fields.iter().map(|field| self.field(field)).collect();
        format!("{{ {} }}", fields.join("; "))
    }

    fn kind(&self, kind: &Type) -> String {
        match kind {
            Type::Null => "null".into(),
            Type::Boolean => "boolean".into(),
            Type::Integer { is_large: true } => self.large_integer.into(),
            Type::Integer { is_large: false } | Type::Number => "number".into(),
            Type::String => "string".into(),
            Type::Words(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                words.join(" | ")
            }
            Type::List(item) => match &**item {
                Type::Union(_) | Type::Words(_) => format!("({})[]", self.kind(item)),
                item => format!("{}[]", self.kind(item)),
            },
            Type::Map(value) => format!("Record<string, {}>", self.kind(value)),
            Type::Any => "unknown".into(),
            Type::Named(name) => name.clone(),
            Type::Record(fields) => self.inline(fields),
            Type::Union(kinds) => {
                let kinds: Vec<String> = kinds.iter().map(|kind| self.kind(kind)).collect();
                kinds.join(" | ")
            }
        }
    }
}

fn comment(about: &str, margin: &str) -> String {
    let lines = wrap(&about.replace("*/", "* /"), 120);
    match &lines[..] {
        [] => String::new(),
        [line] => format!("{margin}/** {line} */\n"),
        lines => {
            let lines: String = lines.iter().map(|line| format!("{margin} * {line}\n")).collect();
            format!("{margin}/**\n{lines}{margin} */\n")
        }
    }
}
