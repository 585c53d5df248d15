//! Doors for the fuzz targets to code that is private otherwise. They exist only with the feature `fuzzing`, and in
//! tests, so that each build of the tests compiles them.

use crate::http::{
    extract::{parse, valid},
    from_wire::{events, limiter},
    problem::Failure,
};
use limina_engine::{
    Command, Name, Page, events as engine_events,
    ledger::{self as engine_ledger, Finish},
    limiter as engine_limiter,
    locks::{self, LockRequest},
};

pub use crate::peers::fuzzing::{
    encode_peer_request, peer_answer, peer_feed, peer_frames, peer_refusals, peer_request, peer_value,
};

/// Reads a message of Liminator's Thrift interface. None: the request would be rejected, or names no limit.
pub fn liminator_command(bytes: &[u8]) -> Option<Command> {
    let (_, call) = crate::liminator::messages::read_call(bytes).ok()?;
    crate::http::liminator::command(&call).ok()?
}

/// Reads a body as one of the calls of the API would. `kind` selects the call. None: the request would be rejected.
pub fn command(kind: usize, body: &[u8]) -> Option<Command> {
    read(kind, body).ok()
}

fn read(kind: usize, body: &[u8]) -> Result<Command, Failure> {
    let name = || Name::new("n").expect("a valid name");
    let limiter = |command| Ok(Command::Limiter(command));
    let change = |change| Ok(Command::Limiter(engine_limiter::Command::Change(change)));
    let transfer = |transfer| -> Result<Command, Failure> {
        let batch = engine_ledger::Batch::new(vec![transfer])?;
        Ok(Command::Ledger(engine_ledger::Command::Batch(batch)))
    };
    match kind % 21 {
        0 => Ok(Command::Ledger(engine_ledger::Command::CreateLimit(valid(parse(body)?)?))),
        1 => Ok(Command::Ledger(engine_ledger::Command::PatchLimit {
            name: name(),
            patch: valid(parse(body)?)?,
        })),
        2 => transfer(engine_ledger::Transfer::Hold(valid(parse(body)?)?)),
        3 => transfer(engine_ledger::Transfer::Finish(Finish::Commit, valid(parse(body)?)?)),
        4 => transfer(engine_ledger::Transfer::Finish(Finish::Rollback, valid(parse(body)?)?)),
        5 => Ok(Command::Ledger(engine_ledger::Command::Values(valid(parse(body)?)?))),
        6 => change(limiter::create_rule(parse(body)?)?),
        7 => change(limiter::put_rule(name(), parse(body)?)?),
        8 => change(limiter::patch_rule(name(), parse(body)?)?),
        9 => change(limiter::create_override(name(), parse(body)?)?),
        10 => change(limiter::patch_override(name(), name(), parse(body)?)?),
        11 => limiter(engine_limiter::Command::Match(limiter::match_query(parse(body)?))),
        12 => limiter(engine_limiter::Command::Check(limiter::check(parse(body)?)?)),
        13 => limiter(limiter::move_counter(parse(body)?)?),
        14 => limiter(engine_limiter::Command::TakeLease(limiter::new_lease(name(), name(), parse(body)?)?)),
        15 => limiter(engine_limiter::Command::ListRules {
            query: engine_limiter::RuleQuery::new(parse(body)?)?,
            page: Page::new(None, 100)?,
        }),
        16 => limiter(engine_limiter::Command::ListCounters {
            query: parse(body)?,
            page: Page::new(None, 100)?,
        }),
        17 => {
            let wanted = valid(parse(body)?)?;
            Ok(Command::Locks(locks::Command::Acquire(LockRequest { id: name(), session: name(), wanted })))
        }
        18 => Ok(Command::Events(engine_events::Command::Put {
            name: name(),
            terms: events::terms(&name(), parse(body)?)?,
        })),
        19 => {
            let new = limiter::rule_set(&name(), parse(body)?)?;
            limiter(engine_limiter::Command::PlanRuleSet(engine_limiter::RuleSetPlan::new(name(), new)?))
        }
        _ => match parse(body) {
            Ok(event) => Ok(Command::Events(events::submit(name(), &event)?)),
            Err(_) => Ok(Command::Events(events::submit_body(name(), body, engine_events::Mode::OnlyOnce)?)),
        },
    }
}
