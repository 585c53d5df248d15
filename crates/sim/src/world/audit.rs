//! The checks at the end of a run.

use super::World;
use limina_engine::ledger::Reply as LedgerReply;
use limina_engine::selection::Query;
use limina_engine::{Command, Listed, Name, Outcome, Page, Request, events, ledger, limiter};

impl World {
    /// Reads everything through the shard. Each answer is compared with the model like any other.
    pub(super) fn audit(&mut self) -> Result<(), String> {
        let namespace = Name::new("n0").expect("a valid name");
        self.ask(&namespace, Command::ListNamespaces(whole()))?;
        for namespace in self.judge.namespaces() {
            self.audit_ledger(&namespace)?;
            for look in self.workload.looks(&namespace) {
                self.ask(&namespace, look)?;
            }
            if self.workload.decided() != Some(&namespace) {
                self.walk_counters(&namespace)?;
            }
        }
        self.audit_followers()
    }

    /// Reads all limits, operations and entries.
    fn audit_ledger(&mut self, namespace: &Name) -> Result<(), String> {
        let list = |command| Command::Ledger(command);
        let limits = self.ask(namespace, list(ledger::Command::ListLimits(whole())))?;
        for only_held in [false, true] {
            self.walk_operations(namespace, only_held)?;
        }
        let Outcome::Ledger(Ok(LedgerReply::Limits(Listed { items, .. }))) = limits else {
            return Err(format!("a list of limits is {limits:?}"));
        };
        for limit_name in items.into_iter().map(|limit| limit.name) {
            let page = whole();
            self.ask(namespace, list(ledger::Command::ListEntries { limit_name, page }))?;
        }
        Ok(())
    }

    /// In the end every follower has the state of its stream, without another change.
    fn audit_followers(&mut self) -> Result<(), String> {
        for _ in 0..3 {
            self.followers.all_come_back(&mut self.random);
            self.settle_followers()?;
        }
        for (namespace, stream) in self.followers.addresses() {
            let command = events::Command::Incubating(stream.clone());
            let frame = match self.ask(&namespace, Command::Events(command))? {
                Outcome::Events(Ok(events::Reply::Incubating(frame))) => Some(frame),
                Outcome::Events(Err(events::Refusal::StreamNotFound { .. })) => None,
                other => return Err(format!("what incubates is {other:?}")),
            };
            // Requests take time, and what becomes due meanwhile is a change.
            self.settle_followers()?;
            self.followers.check_at(&namespace, &stream, frame.as_ref())?;
        }
        Ok(())
    }

    /// Lets followers take everything that there is for them.
    fn settle_followers(&mut self) -> Result<(), String> {
        const ENOUGH: usize = 50;
        for _ in 0..ENOUGH {
            self.pump_followers(true)?;
            self.drain()?;
            self.run_until_quiet()?;
        }
        Ok(())
    }

    /// Reads all operations. One command looks at some of them.
    fn walk_operations(&mut self, namespace: &Name, only_held: bool) -> Result<(), String> {
        let mut after = None;
        loop {
            let page = Page::new(after, Page::<Name>::MAX_LIMIT).expect("the largest page");
            let filter = ledger::OperationFilter { only_held, ..ledger::OperationFilter::default() };
            let command = Command::Ledger(ledger::Command::ListOperations { filter, page });
            match self.ask(namespace, command)? {
                Outcome::Ledger(Ok(LedgerReply::Operations(listed))) => after = listed.next,
                other => return Err(format!("a list of operations is {other:?}")),
            }
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Read page by page, the counters must be the same as in one page, each once.
    pub(super) fn walk_counters(&mut self, namespace: &Name) -> Result<(), String> {
        let mut walked = Vec::new();
        let mut after = None;
        for limit in (1..4).cycle() {
            let page = Page::new(after, limit).expect("a small page");
            let listed = self.counters(namespace, page)?;
            walked.extend(listed.items);
            after = listed.next;
            if after.is_none() {
                break;
            }
        }
        let mut all = self.counters(namespace, whole())?.items;
        for counters in [&mut walked, &mut all] {
            counters.sort_by(|a, b| a.key_values.cmp(&b.key_values));
        }
        if walked == all {
            Ok(())
        } else {
            Err(format!("in parts the counters are {walked:?}, but at once {all:?}"))
        }
    }

    pub(super) fn counters(
        &mut self,
        namespace: &Name,
        page: Page<limiter::CounterId>,
    ) -> Result<limina_engine::Listed<limiter::Counter, limiter::CounterId>, String> {
        let command = limiter::Command::ListCounters { query: Query::default(), page };
        match self.ask(namespace, Command::Limiter(command))? {
            Outcome::Limiter(Ok(limiter::Reply::Counters(listed))) => Ok(listed),
            other => Err(format!("a list of counters is {other:?}")),
        }
    }

    pub(super) fn ask(&mut self, namespace: &Name, command: Command) -> Result<Outcome, String> {
        let request = Request::new(namespace.clone(), command);
        self.last_answer = None;
        // An earlier fault may make the first attempt fail.
        for _ in 0..3 {
            self.send(request.clone());
            self.drain()?;
            self.run_until_quiet()?;
            if let Some(answer) = self.last_answer.take() {
                return Ok(answer);
            }
        }
        Err("the audit was not answered".into())
    }

    pub(super) fn digest(&self) -> Result<u32, String> {
        let all = self.scan(bytes::Bytes::new(), bytes::Bytes::from_static(&[0xff; 8]))?;
        Ok(all
            .iter()
            .fold(0, |crc, (key, value)| crc32c::crc32c_append(crc32c::crc32c_append(crc, key), value)))
    }
}

/// A page that shows everything that a simulation creates.
fn whole<C>() -> Page<C> {
    Page::new(None, Page::<C>::MAX_LIMIT).expect("the largest page")
}
