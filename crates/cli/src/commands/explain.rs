//! `limina explain`: why is it refused? Which rule, who holds it, when is it free.
//!
//! The answer is a decision that is not executed (`dry_run`) and that names holders (`explain`). It says what every part would
//! answer at one instant.

use super::{ledger::Change, rules};
use crate::{Exit, Failed, KeyValueArg, Session, key_values, output::Output, watch::Watch, words};
use limina_api::decisions::{HeldBy, RefusedHold, RefusedLimit, RefusedLock};
use limina_client::{
    Error, KeyValues, Limina, Method, Reply,
    types::{Decision, LimitStatus, RefusedDecision, Rule, RuleMatch},
};
use serde_json::{Value, json};

const NOT_GIVEN_BACK: &str = "They were taken by checks, and are in use until they are given back.";

/// The arguments of `explain`.
#[derive(clap::Args, Debug)]
pub struct ExplainArgs {
    /// What would happen: KEY=TEXT, or KEY:=JSON for a number or a boolean
    #[arg(value_name = "KEY=VALUE", required_unless_present = "hold")]
    key_values: Vec<KeyValueArg>,
    /// How much it would take
    #[arg(long, value_name = "N", default_value_t = 1)]
    hits: u64,
    /// Explain the lock with these key-values instead of the limits
    #[arg(long)]
    lock: bool,
    /// Explain a hold of this amount in a limit of the ledger
    #[arg(long, value_name = "LIMIT=AMOUNT")]
    hold: Vec<Change>,
    #[command(flatten)]
    watch: Watch,
}

pub(crate) async fn run(args: ExplainArgs, session: &mut Session) -> Result<Exit, Failed> {
    let key_values = key_values::joined(&args.key_values)?;
    args.watch.run(session, async |session| explain(&args, &key_values, session).await).await
}

async fn explain(args: &ExplainArgs, key_values: &KeyValues, session: &mut Session) -> Result<Exit, Failed> {
    let question = question(args, key_values);
    let answer: Result<Reply<Decision>, Error> =
        session.client.call(Method::POST, "/decisions").body(&question).read_only().send().await;
    let refused = match &answer {
        Ok(reply) => {
            if !session.out.is_table() {
                session.out.line(reply.json());
                return Ok(Exit::Yes);
            }
            None
        }
        Err(Error::Refused(failure)) => {
            if !session.out.is_table() {
                let problem = serde_json::to_string(&failure.problem);
                session.out.line(problem.unwrap_or_default());
                return Ok(Exit::No);
            }
            let document = failure.document::<RefusedDecision>();
            Some(document.ok_or_else(|| Failed::error(format!("the refusal cannot be read: {failure}")))?)
        }
        Err(_) => None,
    };
    let allowed = answer.map_or_else(
        |error| if refused.is_some() { Ok(None) } else { Err(error) },
        |reply| Ok(Some(reply)),
    )?;
    let client = session.client.clone();
    let namespace = match session.connection.namespace.as_str() {
        "default" => String::new(),
        other => format!("-n {} ", words::printable(other)),
    };
    let mut words = Words { out: &mut session.out, namespace };
    words.verdict(args, key_values, refused.as_ref());
    if !args.lock && !key_values.is_empty() {
        // The rules are for the words alone. A token that may use limits need not be allowed to read rules.
        let matching =
            client.rules().matching(key_values.clone()).await.map(|found| found.into_inner().rules);
        let statuses =
            allowed.as_ref().map(|decision| decision.limits.iter().map(|limit| &limit.status).collect());
        words.limits(&matching.unwrap_or_default(), refused.as_ref(), statuses.unwrap_or_default());
        if allowed.as_ref().is_some_and(|decision| decision.limits.is_empty()) {
            words.unmatched(&client, key_values).await?;
        }
    }
    if let Some(refused) = &refused {
        for lock in &refused.locks {
            words.lock(&client, lock).await?;
        }
        refused.holds.iter().for_each(|hold| words.hold(hold));
        if let Some(after) = refused.retry_after_ms {
            words
                .line(format!("It would be granted in {}, if nothing else happens.", words::duration(after)));
        }
    }
    Ok(Exit::answer(refused.is_none()))
}

/// The decision that is asked for, and not executed.
fn question(args: &ExplainArgs, key_values: &KeyValues) -> Value {
    let mut body =
        json!({"operation_id": format!("explain-{}", std::process::id()), "dry_run": true, "explain": true});
    if !key_values.is_empty() {
        match args.lock {
            true => body["locks"] = json!([{"key_values": key_values}]),
            false => body["checks"] = json!([{"key_values": key_values, "hits": args.hits}]),
        }
    }
    if !args.hold.is_empty() {
        let holds = args.hold.iter().map(|hold| json!({"limit_name": hold.limit_name, "value": hold.value}));
        body["holds"] = holds.collect::<Vec<Value>>().into();
    }
    body
}

struct Words<'o> {
    out: &'o mut Output,
    /// The option of a command about the same namespace, with a space behind it.
    namespace: String,
}

impl Words<'_> {
    fn line(&mut self, line: String) {
        self.out.line(line);
    }

    fn verdict(&mut self, args: &ExplainArgs, key_values: &KeyValues, refused: Option<&RefusedDecision>) {
        let mut what = Vec::new();
        if !key_values.is_empty() {
            let shown = key_values::shown(key_values);
            what.push(match args.lock {
                true => format!("the lock {shown}"),
                false => format!("{} of {shown}", words::counted(args.hits, "hit")),
            });
        }
        what.extend(args.hold.iter().map(|hold| {
            format!("a hold of {} in {}", words::number(hold.value), words::printable(&hold.limit_name))
        }));
        let what = what.join(" with ");
        self.line(match refused {
            None => format!("{} {what} would be granted now.", words::green("Yes:")),
            Some(_) => format!("{} {what} would be refused now.", words::red("No:")),
        });
    }

    /// The rules that apply: first those that refuse.
    fn limits(
        &mut self,
        matching: &[RuleMatch],
        refused: Option<&RefusedDecision>,
        statuses: Vec<&LimitStatus>,
    ) {
        let rule_of = |status: &LimitStatus| {
            matching.iter().map(|found| &found.rule).find(|rule| Some(&rule.name) == status.rule.as_ref())
        };
        let refusing: &[RefusedLimit<'static>] = refused.map_or(&[], |refused| &refused.limits);
        for limit in refusing {
            self.refusing(limit, rule_of(&limit.status));
        }
        for status in statuses {
            let shadow = if status.exceeded { " It would refuse, but it is a shadow." } else { "" };
            let left = status
                .remaining
                .map_or("no limit".to_owned(), |left| format!("it leaves {}", words::number(left)));
            self.line(format!("{} allows it: {left}{}.{shadow}", name(status), group(status)));
        }
        let refuses =
            |rule: &Rule| refusing.iter().any(|limit| limit.status.rule.as_ref() == Some(&rule.name));
        if refused.is_some() {
            for rule in matching.iter().map(|found| &found.rule).filter(|rule| !refuses(rule)) {
                self.line(format!(
                    "Rule {} applies too, and does not refuse.",
                    words::bold(&words::printable(&rule.name))
                ));
            }
        }
    }

    fn refusing(&mut self, limit: &RefusedLimit<'static>, rule: Option<&Rule>) {
        let status = &limit.status;
        let (used, all) = (words::number(status.used), words::limit(status.limit));
        self.line(format!("{} refuses it: {used} of {all} used{}.", name(status), group(status)));
        if let Some(rule) = rule {
            // An override has only another limit; the window is that of its rule.
            let others = if status.override_name.is_some() { " others" } else { "" };
            self.line(format!("  The rule allows{others} {}.", rules::in_words(rule)));
            if let Some(description) = &rule.description {
                self.line(format!("  {}", words::printable(description)));
            }
        }
        if status.waiting > 0 {
            let wait = if status.waiting == 1 { "waits" } else { "wait" };
            self.line(format!(
                "  {} {wait} in line before it.",
                words::counted(status.waiting as u64, "request")
            ));
        }
        match (&limit.held_by, status.reset_ms) {
            (Some(holders), _) => self.holders(holders, "its slots", NOT_GIVEN_BACK),
            (None, Some(reset)) => {
                self.line(format!("  Its window is empty again in {}.", words::duration(reset.0)))
            }
            // A limit without a window has no reset time: a client has to give something back.
            (None, None) => self.holders(&[], "its slots", NOT_GIVEN_BACK),
        }
    }

    fn holders(&mut self, holders: &[HeldBy<'_>], what: &str, nobody: &str) {
        if holders.is_empty() {
            return self.line(format!("  No lease and no decision holds {what}. {nobody}"));
        }
        for holder in holders {
            let id = match (&holder.operation_id, &holder.lease_id) {
                (Some(operation), _) => format!("decision {}", words::printable(operation)),
                (None, Some(lease)) => format!("lease {}", words::printable(lease)),
                (None, None) => "unknown".to_owned(),
            };
            self.line(format!(
                "  Held by {} ({id}) for {}; free in {} at the latest, unless the holder renews it.",
                words::bold(&words::or_dash(holder.owner.as_ref())),
                words::duration(holder.held_ms),
                words::duration(holder.expires_in_ms),
            ));
        }
    }

    async fn lock(&mut self, client: &Limina, lock: &RefusedLock<'_>) -> Result<(), Failed> {
        let shown = key_values::shown(&lock.key_values);
        match (lock.held_ms, lock.expires_in_ms) {
            (Some(held), Some(expires)) => {
                self.line(format!(
                    "The lock {shown} is held by {} for {}; free in {} at the latest, unless the holder renews it.",
                    words::bold(&words::or_dash(lock.owner.as_ref())),
                    words::duration(held),
                    words::duration(expires),
                ));
            }
            _ => self.line(format!("Nobody holds the lock {shown}, but an earlier request waits for it.")),
        }
        if lock.waiting > 0 {
            let wait = if lock.waiting == 1 { "waits" } else { "wait" };
            self.line(format!(
                "  {} {wait} in line before it.",
                words::counted(lock.waiting as u64, "request")
            ));
        }
        // How to release this lock is shown only if the token may read locks.
        let count = lock.key_values.len();
        let query = json!({"where": lock.key_values, "min_keys": count, "max_keys": count});
        if let Ok(Some(grant)) = client.locks().query(&query).next().await {
            let namespace = &self.namespace;
            self.line(format!(
                "  To release it by force: limina {namespace}locks release {} --yes",
                grant.lock_id
            ));
        }
        Ok(())
    }

    fn hold(&mut self, hold: &RefusedHold<'_>) {
        let limit = words::bold(&words::printable(&hold.limit_name));
        let Some(ceiling) = hold.ceiling.filter(|_| hold.code == "LimitExceeded") else {
            return self.line(format!("The values of {limit} would leave 64 bits."));
        };
        self.line(format!(
            "{limit} refuses it: of its ceiling of {}, {} are committed and {} are held, so {} can be held.",
            words::number(ceiling),
            words::number(hold.commit_value),
            words::number(hold.hold_value),
            words::number(hold.available),
        ));
        if let Some(holders) = &hold.held_by {
            self.holders(holders, "an amount in it", "`limina ledger open --in LIMIT` lists plain holds.");
        }
    }

    /// Why no rule applies: perhaps a key is misspelt.
    async fn unmatched(&mut self, client: &Limina, key_values: &KeyValues) -> Result<(), Failed> {
        self.line("No rule applies to these key-values, so nothing limits them.".to_owned());
        let Ok(Some(page)) = client.rules().list().page_size(5).next_page().await else { return Ok(()) };
        for rule in &page.items {
            let missing: Vec<String> = rule
                .group_by
                .iter()
                .filter(|key| key_values.get(key).is_none())
                .map(|key| words::printable(key))
                .collect();
            let why = if missing.is_empty() {
                "its selection does not hold".to_owned()
            } else {
                format!("it needs the key {}", missing.join(" and "))
            };
            self.line(format!("  {} does not apply: {why}.", words::printable(&rule.name)));
        }
        Ok(())
    }
}

fn name(status: &LimitStatus) -> String {
    let rule = words::bold(&super::check::rule_name(status));
    match &status.override_name {
        Some(name) => format!("Override {} of rule {rule}", words::bold(&words::printable(name))),
        None => format!("Rule {rule}"),
    }
}

fn group(status: &LimitStatus) -> String {
    if status.group.is_empty() { String::new() } else { format!(" for {}", key_values::shown(&status.group)) }
}
