//! Random ids. Front ends and embedders take them from here, since the engine has no randomness.

use limina_engine::Name;
use limina_store::NodeId;

/// The operating system returned no random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operating system returned no random numbers")]
pub struct NoRandomNumbers;

/// A new id for a lease, a lock, a session or a connection: 128 random bits as hexadecimal digits. Nobody can guess it, and
/// no two draws return the same id.
pub fn draw_id() -> Result<Name, NoRandomNumbers> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| NoRandomNumbers)?;
    let text = format!("{:032x}", u128::from_be_bytes(bytes));
    Ok(Name::new(&text).expect("hexadecimal digits are a name"))
}

/// A new id for a node. It has 63 bits, so that a signed column of a database can store it.
pub fn draw_node_id() -> Result<NodeId, NoRandomNumbers> {
    Ok(NodeId(getrandom::u64().map_err(|_| NoRandomNumbers)? >> 1))
}
