//! What windows have kept of relaxed checks after a loss. The opened shard shows it.

use super::{
    Answer, GroupKey, Limiter,
    window::{History, NEVER, Reading, Shape},
};
use limina_engine::{
    Millis, Name, Page,
    limiter::{Check, Command, Group, Refusal, Reply, RequestLimit, Take},
};
use std::collections::BTreeMap;

/// For each window that may lack relaxed checks: what may be stored of it, the longest first.
pub(in crate::model) struct UncertainWindows(BTreeMap<GroupKey, Vec<History>>);

impl Limiter {
    /// The windows after a loss.
    pub(in crate::model) fn uncertain_windows(&self, persisted: u64) -> UncertainWindows {
        UncertainWindows(
            self.groups.iter().map(|(key, history)| (key.clone(), history.rests(persisted))).collect(),
        )
    }

    /// The shard was opened with these windows.
    pub(in crate::model) fn settle_windows(&mut self, UncertainWindows(windows): UncertainWindows) {
        let longest = |rests: Vec<History>| rests.into_iter().next().map(History::into_stored);
        self.groups = windows.into_iter().filter_map(|(key, rests)| Some((key, longest(rests)?))).collect();
    }

    /// What kind of window it is.
    fn shape(&self, key: &GroupKey) -> Option<Shape> {
        match key {
            GroupKey::Request { per, .. } => Some(Shape::Fixed(*per)),
            GroupKey::Group { rule, .. } | GroupKey::Own { rule, .. } => {
                self.rule(rule)?.terms.window.map(Shape::of)
            }
        }
    }
}

impl UncertainWindows {
    /// When to look at the windows: at once, and when the relaxed checks cease to count. By then all that may be stored differs.
    pub(in crate::model) fn times(&self, limiter: &Limiter, persisted: u64) -> Vec<u64> {
        let of_one = |(key, rests): (&GroupKey, &Vec<History>)| -> Vec<u64> {
            let per = limiter.shape(key).map_or(0, Shape::per);
            let ends = rests.iter().filter_map(History::last_relaxed).map(|time| time + per - 1);
            ends.filter(|time| *time > persisted).collect()
        };
        let unsure = self.0.iter().filter(|(_, rests)| rests.len() > 1);
        unsure.flat_map(of_one).chain([persisted]).collect()
    }

    /// Removes what differs from what the shard shows at this time.
    pub(in crate::model) fn look(
        &mut self,
        limiter: &Limiter,
        time: u64,
        ask: &mut dyn FnMut(Command) -> Result<Answer, String>,
    ) -> Result<(), String> {
        let mut listed: BTreeMap<Name, Vec<Group>> = BTreeMap::new();
        for (key, rests) in self.0.iter_mut().filter(|(_, rests)| rests.len() > 1) {
            let Some(shape) = limiter.shape(key) else { continue };
            let (used, reset) = match key {
                GroupKey::Request { key_values, per } => {
                    let limit = RequestLimit::new(1, Millis(*per)).expect("a valid limit");
                    let take = Take::new(key_values.clone(), 0).expect("nothing is taken");
                    let check = Check::new(vec![take.with_limit(Some(limit))]).expect("a valid check");
                    match ask(Command::Check(check.with_dry_run(true)))? {
                        Ok(Reply::Allowed(decision)) => {
                            (decision.limits[0].used, decision.limits[0].reset_ms)
                        }
                        other => return Err(format!("no decision: {other:?}")),
                    }
                }
                GroupKey::Group { rule, .. } | GroupKey::Own { rule, .. } => {
                    if !listed.contains_key(rule) {
                        let page = Page::new(None, 1_000).expect("a valid page");
                        let command = Command::ListGroups { rule: rule.clone(), above: None, page };
                        match ask(command)? {
                            Ok(Reply::Groups(groups)) => listed.insert(rule.clone(), groups.items),
                            Err(Refusal::RuleNotFound { .. }) => listed.insert(rule.clone(), Vec::new()),
                            other => return Err(format!("no list: {other:?}")),
                        };
                    }
                    let shown = listed[rule].iter().find(|group| limiter.is_of(key, group));
                    shown.map_or((0, None), |group| (group.used, group.reset_ms))
                }
            };
            let reset = reset.map_or(NEVER, |reset| reset.0);
            let is_right = |reading: &Reading| {
                reading.used.contains(used) && (used == 0 || reading.reset.contains(reset))
            };
            let all: Vec<Reading> = rests.iter().map(|rest| rest.show(shape, time)).collect();
            let mut right = all.iter().map(is_right);
            rests.retain(|_| right.next().unwrap_or(false));
            if rests.is_empty() {
                return Err(format!("{key:?} shows {used}, {reset} at {time}, in place of one of {all:?}"));
            }
        }
        Ok(())
    }
}

impl Limiter {
    /// Whether a list shows this window so.
    fn is_of(&self, key: &GroupKey, shown: &Group) -> bool {
        match key {
            GroupKey::Request { .. } => false,
            GroupKey::Group { values, .. } => {
                let rule = key.rule().and_then(|rule| self.rule(rule));
                let item = rule.and_then(|rule| rule.exact(values)).map(|item| &item.item.name);
                shown.group == *values && shown.override_name.as_ref() == item
            }
            GroupKey::Own { name, .. } => shown.override_name.as_ref() == Some(name),
        }
    }
}
