//! What of the last append's state the opened shard has.
//!
//! A model of what was decided cannot know two things. Timers are no decisions: of those that were due by the stored time, the last
//! ones may have fired after the append. And relaxed checks are stored some time after their answers: a window may lack the last
//! ones. The opened shard shows both. It must show a state that may be stored, and from then on the model follows that state alone.

use super::{Model, Namespace};
use limina_engine::{
    Command, Name, Outcome, Page, Position, Time, decisions, events, limiter, locks, selection::Query,
};
use std::collections::BTreeSet;

/// Asks the shard as it was just opened. Times must not go back, and nothing is executed that is due by then.
pub type Ask<'a> = dyn FnMut(Time, &Name, Command) -> Result<Outcome, String> + 'a;

/// What timers remove.
type Held = BTreeSet<String>;

impl Model {
    /// The state with which the shard is opened, if everything decided so far was stored by then. It must be what the shard shows.
    pub(super) fn as_loaded(&self, persisted: Time, ask: &mut Ask<'_>) -> Result<Model, String> {
        let mut differences = Vec::new();
        for mut model in self.on_the_way(persisted) {
            model.batches.clear();
            model.waiting.clear();
            for namespace in model.namespaces.values_mut() {
                namespace.give_up();
            }
            match model.agree(persisted, ask)? {
                Ok(()) => {
                    model.settle_windows(persisted, ask)?;
                    return Ok(model);
                }
                Err(difference) => differences.push(difference),
            }
        }
        Err(format!("what is stored after a loss is none of what may be: {differences:?}"))
    }

    /// This state, and all that follow while timers fire that are due by then and answer no request.
    fn on_the_way(&self, by: Time) -> Vec<Model> {
        let (mut all, mut next) = (Vec::new(), vec![self.clone()]);
        while let Some(model) = next.pop() {
            next.extend(model.after_next_due(by));
            all.push(model);
        }
        all
    }

    /// The states after the next due timer. Between namespaces, the order is not known.
    fn after_next_due(&self, now: Time) -> Vec<Model> {
        let due = |namespace: &Namespace| namespace.next_due().filter(|due| *due <= now.0);
        let first = self.namespaces.values().filter_map(due).min();
        let ready =
            self.namespaces.iter().filter(|(_, namespace)| first.is_some() && due(namespace) == first);
        let fire = |(name, namespace): (&Name, &Namespace)| {
            let mut namespace = namespace.clone();
            let mut model = self.clone();
            let is_quiet = namespace.expire_next(now).is_empty();
            model.namespaces.insert(name.clone(), namespace);
            is_quiet.then_some(model)
        };
        ready.filter_map(fire).collect()
    }

    /// Whether the shard shows the same namespaces with the same positions, and in each of them the same holders and events. The inner
    /// error is a difference.
    fn agree(&mut self, at: Time, ask: &mut Ask<'_>) -> Result<Result<(), String>, String> {
        let any = Name::new("any").expect("a valid name");
        let Outcome::Namespaces(shown) = ask(at, &any, Command::ListNamespaces(whole()))? else {
            return Err("no list of namespaces".into());
        };
        self.namespaces
            .retain(|name, namespace| !namespace.is_relaxed || shown.iter().any(|item| item.name == *name));
        if !self.namespaces.keys().eq(shown.iter().map(|item| &item.name)) {
            return Ok(Err(format!("{:?} in place of {shown:?}", self.namespaces.keys())));
        }
        for (item, (name, namespace)) in shown.iter().zip(&mut self.namespaces) {
            namespace.is_relaxed = false;
            if !namespace.order.is_exact {
                namespace.order.learn(item.position);
            }
            let (expected, held) = (namespace.held(), held_at(at, name, namespace, ask)?);
            if item.position != Position(namespace.order.position) || expected != held {
                return Ok(Err(format!(
                    "{:?}: {expected:?} in place of {item:?}: {held:?}",
                    namespace.order
                )));
            }
        }
        Ok(Ok(()))
    }

    /// Finds out which relaxed checks the windows have kept.
    fn settle_windows(&mut self, persisted: Time, ask: &mut Ask<'_>) -> Result<(), String> {
        let namespaces = || self.namespaces.iter();
        let mut unsure: Vec<_> = namespaces()
            .map(|(name, of)| (name.clone(), of.limiter.uncertain_windows(persisted.0)))
            .collect();
        let times = unsure
            .iter()
            .flat_map(|(name, windows)| windows.times(&self.namespaces[name].limiter, persisted.0));
        for time in times.collect::<BTreeSet<u64>>() {
            for (name, windows) in &mut unsure {
                let limiter = &self.namespaces[name].limiter;
                windows.look(limiter, time, &mut |command| match ask(
                    Time(time),
                    name,
                    Command::Limiter(command),
                )? {
                    Outcome::Limiter(answer) => Ok(answer),
                    other => Err(format!("no answer of the limiter: {other:?}")),
                })?;
            }
        }
        for (name, windows) in unsure {
            self.namespaces.get_mut(&name).expect("it exists").limiter.settle_windows(windows);
        }
        Ok(())
    }
}

impl Namespace {
    fn held(&self) -> Held {
        let leases = self.limiter.lease_ids().map(|id| format!("lease {id}"));
        let locks = self.locks.held_ids().map(|id| format!("lock {id}"));
        let decisions = self.decisions.open_positions().map(|position| format!("decision {position}"));
        let streams = self.events.clocks().map(|(stream, clock)| format!("stream {stream} {clock}"));
        let held = leases.chain(streams);
        if self.is_decided { held.chain(decisions).collect() } else { held.chain(locks).collect() }
    }
}

fn held_at(at: Time, name: &Name, namespace: &Namespace, ask: &mut Ask<'_>) -> Result<Held, String> {
    let mut held = Held::new();
    let of_family = match namespace.is_decided {
        true => vec![Command::Decisions(decisions::Command::List {
            owner: None,
            older_than: None,
            page: whole(),
        })],
        false => vec![
            Command::Limiter(limiter::Command::ListLeases { owner: None, page: whole() }),
            Command::Locks(locks::Command::List { query: Query::default(), page: whole() }),
        ],
    };
    for command in of_family.into_iter().chain([Command::Events(events::Command::List(whole()))]) {
        match ask(at, name, command)? {
            Outcome::Limiter(Ok(limiter::Reply::Leases(listed))) => {
                held.extend(listed.items.iter().map(|lease| format!("lease {}", lease.lease_id)));
            }
            Outcome::Locks(Ok(locks::Reply::Grants(listed))) => {
                held.extend(listed.items.iter().map(|grant| format!("lock {}", grant.lock_id)));
            }
            Outcome::Decisions(Ok(decisions::Reply::Decisions(listed))) => {
                let tokens = listed.items.iter().filter_map(|decision| decision.fencing_token);
                held.extend(tokens.map(|token| format!("decision {}", token.0)));
            }
            Outcome::Events(Ok(events::Reply::Streams(listed))) => {
                held.extend(
                    listed.items.iter().map(|stream| format!("stream {} {}", stream.name, stream.clock)),
                );
            }
            other => return Err(format!("no list: {other:?}")),
        }
    }
    Ok(held)
}

/// A page that shows everything that a simulation creates.
fn whole<C>() -> Page<C> {
    Page::new(None, Page::<C>::MAX_LIMIT).expect("the largest page")
}
