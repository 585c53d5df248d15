//! What a command that asks a server works with.

use crate::{Failed, connection::Connection, output::Output, words};
use limina_client::{Error, Limina};

/// What every command has: the client, and where to write.
pub(crate) struct Session {
    pub(crate) client: Limina,
    pub(crate) connection: Connection,
    pub(crate) out: Output,
}

impl Session {
    /// Another command about the same namespace, to show as the next step.
    pub(crate) fn command(&self, command: &str) -> String {
        match self.connection.namespace.as_str() {
            "default" => format!("limina {command}"),
            namespace => format!("limina -n {} {command}", words::shell_quoted(namespace)),
        }
    }

    /// Says what was done, for people. Programs read the exit code.
    pub(crate) fn done(&mut self, what: &str, name: &str) {
        if self.out.is_table() {
            self.out.say(format!("{what} {}", words::printable(name)));
        }
    }

    /// The failure of a change, with the command that helps.
    pub(crate) fn with_next_step(&self, error: Error) -> Failed {
        let failure = error.failure();
        let text = |field: &str| Some(failure.problem.as_ref()?.extensions.get(field)?.as_str()?.to_owned());
        let next = match failure.code() {
            Some("RuleManagedBySet") => match text("managed_by").as_deref() {
                Some("file") => "Change it in the server's rules file, which the server follows.".to_owned(),
                Some("envoy") => {
                    let set = self.command("overrides set");
                    format!(
                        "Change it in Envoy's configuration, which the server follows, or make an override with `{set}`."
                    )
                }
                set => {
                    let set = words::shell_quoted(set.unwrap_or("SET"));
                    let apply = self.command(&format!("rules apply FILE --set {set}"));
                    format!("Change it in the file of the set, and run `{apply}`.")
                }
            },
            Some("RuleNotFound") => format!("`{}` lists the rules.", self.command("rules ls")),
            Some("OverrideNotFound") => {
                let rule = text("rule").map_or("RULE".to_owned(), |rule| words::shell_quoted(&rule));
                format!("`{}` lists the overrides.", self.command(&format!("overrides ls {rule}")))
            }
            Some("OverridesConflict") => {
                "Every override needs all keys of the groups: change or delete the overrides first."
                    .to_owned()
            }
            Some("StreamNotFound") => format!("`{}` lists the streams.", self.command("streams ls")),
            Some("StreamModeConflict") => {
                "To change it, delete the stream with `limina streams rm`, and create it again.".to_owned()
            }
            Some("LimitNotFound") => format!("`{}` lists the limits.", self.command("ledger limits")),
            Some("LimitInUse") => {
                let name = text("limit_name").map_or("LIMIT".to_owned(), |name| words::shell_quoted(&name));
                format!("`{}` lists what is open in it.", self.command(&format!("ledger open --in {name}")))
            }
            _ => return error.into(),
        };
        let mut failed = Failed::from(error);
        failed.message = format!("{} {next}", failed.message);
        failed
    }
}
