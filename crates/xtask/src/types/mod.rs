//! Writes the types of the TypeScript client, the Python client and the console from `docs/openapi.json`, so that the
//! contract is declared once, in `crates/api`.
//!
//! Each package names the schemas with which it begins, and the types get the names that its users read. A name differs
//! from the schema's only where the package has a better word, or uses the schema's name for something else.

mod model;
mod python;
#[cfg(test)]
mod tests;
mod text;
mod typescript;

use crate::{
    program::{Outcome, root},
    sources,
};
use model::Wanted;
use typescript::Dialect;

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
