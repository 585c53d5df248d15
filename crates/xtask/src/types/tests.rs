//! What schemas become in each language.

use super::*;

/// What the schema `Schema`, which gets the name `T`, becomes in TypeScript. `Big` is the type of large integers, and the package has `Given` itself.
fn in_typescript(schemas: &str) -> String {
    let dialect = Dialect { imports: "", large_integer: "Big" };
    let text = typescript::write(&models(schemas), &dialect);
    text.split_once("\n\n").map(|(_, types)| types.to_owned()).unwrap_or_default()
}

fn in_python(schemas: &str) -> String {
    let text = python::write(&models(schemas), &["Given"]).expect("the types can be written");
    let (_, types) = text.split_once("import Given\n\n\n").expect("an import");
    types.split("\n__all__").next().unwrap_or_default().to_owned()
}

fn models(schemas: &str) -> Vec<model::Model> {
    let openapi = format!(r#"{{"components": {{"schemas": {{{schemas}}}}}}}"#);
    let wanted = Wanted { schemas: &[("Schema", "T")], given: &["Given"] };
    model::read(&openapi, &wanted).expect("the schemas can be read")
}

#[test]
fn the_files_are_current() {
    check().expect("run `cargo xtask types`");
}

#[test]
fn fields_have_their_comments_and_required_ones_come_first() {
    let schema = r##""Schema": {"type": "object", "description": "A thing.", "required": ["b", "a"], "properties": {
            "a": {"type": "boolean"},
            "b": {"description": "The name.", "$ref": "#/components/schemas/Name"},
            "c": {"type": ["integer", "null"], "maximum": 18446744073709551615, "minimum": 0},
            "d_ms": {"type": "integer", "maximum": 18446744073709551615},
            "e": {"oneOf": [{"$ref": "#/components/schemas/Mode", "description": "The mode."}, {"type": "null"}]},
            "f": {"$ref": "#/components/schemas/Given"}
        }},
        "Name": {"type": "string", "maxLength": 256},
        "Mode": {"type": "string", "enum": ["shared", "exclusive"]}"##;
    let expected = r#"export type Mode = "shared" | "exclusive";

/** A thing. */
export interface T {
  /** The name. */
  b: string;
  a: boolean;
  c?: Big | null;
  d_ms?: number;
  /** The mode. */
  e?: Mode | null;
  f?: Given;
}
"#;
    assert_eq!(in_typescript(schema), expected);
    let expected = r#"class T(Struct, frozen=True, kw_only=True):
    """A thing."""

    b: str
    """The name."""
    a: bool
    c: int | None = None
    d_ms: int | None = None
    e: Mode | None = None
    """The mode."""
    f: Given | None = None


Mode = Literal["shared", "exclusive"]
"#;
    assert_eq!(in_python(schema), expected);
}

/// `ttl` or `ttl_ms`: requests may give either.
#[test]
fn alternatives_of_a_request_become_one_type() {
    let schema = r##""Schema": {"oneOf": [
            {"type": "object", "required": ["key", "ttl"], "additionalProperties": false, "properties": {
                "key": {"type": "string"}, "ttl": {"type": "string"}, "ttl_ms": {"type": "null"}}},
            {"type": "object", "required": ["key", "ttl_ms"], "additionalProperties": false, "properties": {
                "key": {"type": "string"}, "ttl": {"type": "null"}, "ttl_ms": {"type": "integer"}}}
        ]}"##;
    let expected = "export type T = {
  key: string;
  ttl?: string | null;
  ttl_ms?: number | null;
} & ({ ttl: string } | { ttl_ms: number });
";
    assert_eq!(in_typescript(schema), expected);
    let expected = "class _T(Struct, frozen=True, omit_defaults=True):
    key: str


class T(_T, frozen=True, omit_defaults=True, kw_only=True):
    ttl: str | None = None
    ttl_ms: int | None = None

";
    assert_eq!(in_python(schema), expected);
}

#[test]
fn alternatives_with_a_tag_stay_apart() {
    let schema = r##""Schema": {"oneOf": [
            {"type": "object", "required": ["kind", "event"], "properties": {
                "kind": {"type": "string", "enum": ["SUBMITTED_EVENT"]}, "event": {"type": "string"}}},
            {"type": "object", "required": ["kind"], "properties": {
                "kind": {"type": "string", "enum": ["KEY_FRAME"]}}}
        ]}"##;
    let expected = r#"export interface KeyFrame {
  kind: "KEY_FRAME";
}

export interface SubmittedEvent {
  kind: "SUBMITTED_EVENT";
  event: string;
}

export type T = SubmittedEvent | KeyFrame;
"#;
    assert_eq!(in_typescript(schema), expected);
    let python = in_python(schema);
    assert!(python.contains(r#"tag_field="kind", tag="KEY_FRAME""#), "{python}");
    assert!(python.contains("T = SubmittedEvent | KeyFrame"), "{python}");
}

#[test]
fn parts_are_one_type_and_a_part_that_only_limits_another_adds_nothing() {
    let schema = r##""Schema": {"allOf": [
            {"$ref": "#/components/schemas/Base"},
            {"type": "object", "required": ["own"], "properties": {"own": {
                "allOf": [{"$ref": "#/components/schemas/Values"}, {"type": "object", "minProperties": 1}]}}}
        ]},
        "Base": {"type": "object", "properties": {"base": {"type": "array", "items": {"type": "boolean"}}}},
        "Values": {"type": "object", "additionalProperties": {"oneOf": [
            {"type": "string"},
            {"type": "object", "properties": {"DataType": {"type": "integer"}}}
        ]}}"##;
    let expected = "export interface T {
  own: Values;
  base?: boolean[];
}

export type Values = Record<string, string>;
";
    assert_eq!(in_typescript(schema), expected);
}

#[test]
fn a_missing_schema_is_named() {
    let wanted = Wanted { schemas: &[("Gone", "T")], given: &[] };
    let error = model::read(r#"{"components": {"schemas": {}}}"#, &wanted).expect_err("there is none");
    assert_eq!(error, "the schema Gone: docs/openapi.json has no schema Gone");
}
