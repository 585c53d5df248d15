//! Writes the types of the TypeScript client, the Python client and the console from `docs/openapi.json`, so that the
//! contract is declared once, in `crates/api`.
//!
//! Each package names the schemas with which it begins, and the types get the names that its users read. A name differs
//! from the schema's only where the package has a better word, or uses the schema's name for something else.

mod model;
mod python;
mod text;
mod typescript;

use crate::{
    program::{Outcome, root},
    sources,
};
use model::Wanted;
use typescript::Dialect;

/// The first line of every file that this command writes, after the language's sign for a comment.
const FIRST_LINE: &str = "COMMENT Generated from docs/openapi.json by `cargo xtask types`. Do not edit.";

const TYPESCRIPT: Wanted<'_> = Wanted {
    schemas: &[
        ("Change", "Change"),
        ("Check", "Check"),
        ("CheckReply", "CheckReply"),
        ("CommitDecision", "CommitDecision"),
        ("Counter", "Counter"),
        ("CounterReply", "CounterReply"),
        ("CreateOverride", "CreateOverride"),
        ("CreateRule", "CreateRule"),
        ("Decision", "Decision"),
        ("Entry", "Entry"),
        ("Finalization", "Finalization"),
        ("FinalizationReply", "FinalizationReply"),
        ("Granted", "LockGrant"),
        ("Groups", "Groups"),
        ("Hold", "Hold"),
        ("HoldReply", "HoldReply"),
        ("Incubating", "Incubating"),
        ("Lease", "Lease"),
        ("LeaseReply", "LeaseGrant"),
        ("Limit", "Limit"),
        ("LimitPatch", "LimitPatch"),
        ("Lock", "Lock"),
        ("MatchReply", "MatchReply"),
        ("Message", "Message"),
        ("Namespace", "Namespace"),
        ("NewDecision", "NewDecision"),
        ("NewLimit", "NewLimit"),
        ("NewOverride", "NewOverride"),
        ("NewRule", "NewRule"),
        ("NewRuleSet", "NewRuleSet"),
        ("Operation", "Operation"),
        ("OverridePatch", "OverridePatch"),
        ("PutStream", "NewStream"),
        ("Query", "Query"),
        ("RefusedRequest", "Refusal"),
        ("Rule", "Rule"),
        ("RulePatch", "RulePatch"),
        ("RuleQuery", "RuleQuery"),
        ("RuleSet", "RuleSet"),
        ("RuleSetChanges", "RuleSetChanges"),
        ("RuleSetInfo", "RuleSetInfo"),
        ("State", "OperationState"),
        ("Stream", "Stream"),
        ("Submitted", "Submitted"),
        ("ValuesReply", "ValuesReply"),
    ],
    given: &[],
};

/// In Python, what a program makes has the short name, and what the server keeps is its status.
const PYTHON: Wanted<'_> = Wanted {
    schemas: &[
        ("Change", "Hold"),
        ("CheckReply", "CheckReply"),
        ("Counter", "Counter"),
        ("CounterReply", "CounterReply"),
        ("CreateOverride", "Override"),
        ("Decision", "DecisionStatus"),
        ("DecisionCheck", "Check"),
        ("DecisionEvent", "Event"),
        ("Entry", "Entry"),
        ("EventOfDecision", "DecisionEvent"),
        ("FinalizationReply", "FinalizationReply"),
        ("Granted", "LockGrant"),
        ("Groups", "Groups"),
        ("HoldReply", "HoldReply"),
        ("Incubating", "Incubating"),
        ("Lease", "LeaseStatus"),
        ("LeaseReply", "LeaseGrant"),
        ("Limit", "LedgerLimit"),
        ("Lock", "LockStatus"),
        ("MatchReply", "MatchReply"),
        ("Message", "Message"),
        ("NewSetRule", "Rule"),
        ("NewWindow", "Window"),
        ("Operation", "Operation"),
        ("Override", "OverrideStatus"),
        ("Rule", "RuleStatus"),
        ("RuleMatch", "RuleMatch"),
        ("RuleSet", "RuleSet"),
        ("RuleSetChanges", "RuleSetChanges"),
        ("RuleSetInfo", "RuleSetInfo"),
        ("SetRule", "SetRuleStatus"),
        ("State", "OperationState"),
        ("Stream", "Stream"),
        ("Submitted", "Submitted"),
        ("ValuesReply", "ValuesReply"),
        ("WantedLock", "Lock"),
        ("Window", "WindowStatus"),
    ],
    given: &["KeyValues", "Selection"],
};

const CONSOLE: Wanted<'_> = Wanted {
    schemas: &[
        ("AuditRecord", "AuditRecord"),
        ("CheckReply", "CheckReply"),
        ("Cluster", "Cluster"),
        ("Counter", "Counter"),
        ("Decision", "Decision"),
        ("Entry", "Entry"),
        ("Groups", "Groups"),
        ("Lease", "Lease"),
        ("Limit", "Limit"),
        ("Lock", "Lock"),
        ("MatchReply", "MatchReply"),
        ("Namespace", "Namespace"),
        ("Operation", "Operation"),
        ("Override", "Override"),
        ("RefusedRequest", "Refusal"),
        ("Rule", "Rule"),
        ("RuleSet", "RuleSet"),
        ("RuleSetInfo", "RuleSetInfo"),
        ("Stream", "Stream"),
        ("ValuesReply", "ValuesReply"),
    ],
    given: &["KeyValue", "KeyValues"],
};

pub(crate) fn write() -> Outcome {
    for (path, text) in generate()? {
        std::fs::write(root().join(path), text).map_err(|error| format!("writing {path}: {error}"))?;
    }
    Ok(())
}

/// Fails if a file is not what `write` would make of it.
pub(crate) fn check() -> Outcome {
    let is_old = |(path, text): &(&'static str, String)| {
        !sources::read(&root().join(path)).is_ok_and(|current| current == *text)
    };
    match generate()?.iter().find(|file| is_old(file)) {
        None => Ok(()),
        Some((path, _)) => Err(format!("{path} does not fit docs/openapi.json: run `cargo xtask types`")),
    }
}

/// The files with their paths.
fn generate() -> Result<Vec<(&'static str, String)>, String> {
    let openapi = sources::read(&root().join("docs/openapi.json"))?;
    let client = Dialect { imports: "", large_integer: "number" };
    let imports =
        "import type { Num } from \"./json\";\nimport type { KeyValue, KeyValues } from \"./keyvalues\";";
    let console = Dialect { imports, large_integer: "Num" };
    Ok(vec![
        ("clients/typescript/src/types.ts", typescript::write(&model::read(&openapi, &TYPESCRIPT)?, &client)),
        (
            "clients/python/src/limina/_schemas.py",
            python::write(&model::read(&openapi, &PYTHON)?, PYTHON.given)?,
        ),
        ("console/src/types.ts", typescript::write(&model::read(&openapi, &CONSOLE)?, &console)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a schema `T` becomes in TypeScript. `Big` is the type of large integers, and the package has `Given` itself.
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
        let schema = r#""Schema": {"type": "object", "description": "A thing.", "required": ["b", "a"], "properties": {
            "a": {"type": "boolean"},
            "b": {"description": "The name.", "$ref": "#/components/schemas/Name"},
            "c": {"type": ["integer", "null"], "maximum": 18446744073709551615, "minimum": 0},
            "d_ms": {"type": "integer", "maximum": 18446744073709551615},
            "e": {"oneOf": [{"$ref": "#/components/schemas/Mode", "description": "The mode."}, {"type": "null"}]},
            "f": {"$ref": "#/components/schemas/Given"}
        }},
        "Name": {"type": "string", "maxLength": 256},
        "Mode": {"type": "string", "enum": ["shared", "exclusive"]}"#;
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
        let schema = r#""Schema": {"oneOf": [
            {"type": "object", "required": ["key", "ttl"], "additionalProperties": false, "properties": {
                "key": {"type": "string"}, "ttl": {"type": "string"}, "ttl_ms": {"type": "null"}}},
            {"type": "object", "required": ["key", "ttl_ms"], "additionalProperties": false, "properties": {
                "key": {"type": "string"}, "ttl": {"type": "null"}, "ttl_ms": {"type": "integer"}}}
        ]}"#;
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
        let schema = r#""Schema": {"oneOf": [
            {"type": "object", "required": ["kind", "event"], "properties": {
                "kind": {"type": "string", "enum": ["SUBMITTED_EVENT"]}, "event": {"type": "string"}}},
            {"type": "object", "required": ["kind"], "properties": {
                "kind": {"type": "string", "enum": ["KEY_FRAME"]}}}
        ]}"#;
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
        let schema = r#""Schema": {"allOf": [
            {"$ref": "#/components/schemas/Base"},
            {"type": "object", "required": ["own"], "properties": {"own": {
                "allOf": [{"$ref": "#/components/schemas/Values"}, {"type": "object", "minProperties": 1}]}}}
        ]},
        "Base": {"type": "object", "properties": {"base": {"type": "array", "items": {"type": "boolean"}}}},
        "Values": {"type": "object", "additionalProperties": {"oneOf": [
            {"type": "string"},
            {"type": "object", "properties": {"DataType": {"type": "integer"}}}
        ]}}"#;
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
}
