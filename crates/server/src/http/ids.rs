//! Ids that the server draws: of leases, locks and sessions.

use super::problem::{Code, Failure};
use limina_engine::Name;

/// An id that nobody guesses and that is never drawn twice.
pub(crate) fn draw_id() -> Result<Name, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|_| Failure::new(Code::ShardUnavailable, "the system gives no random numbers"))?;
    let text = format!("{:032x}", u128::from_be_bytes(bytes));
    Ok(Name::new(&text).expect("hexadecimal digits are a name"))
}
