//! Random ids of leases, locks and sessions.

use super::problem::{Code, Failure};
use limina_engine::Name;

/// 128 random bits as 32 hexadecimal digits: nobody can guess the id, and no two are equal.
pub(crate) fn draw_id() -> Result<Name, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| {
        Failure::new(
            Code::ShardUnavailable,
            "The operating system provides no random numbers. Nothing was done.",
        )
    })?;
    let text = format!("{:032x}", u128::from_be_bytes(bytes));
    Ok(Name::new(&text).expect("hexadecimal digits are a name"))
}
