//! The numbers by which the engine names namespaces and waiting requests.

/// The number of a namespace within its shard. The number of a deleted namespace is not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId(pub u32);

/// Identifies a waiting request. Ids ascend in the order in which requests began to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitId(pub u64);
