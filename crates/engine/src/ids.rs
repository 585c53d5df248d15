//! The numbers by which the engine names namespaces and waiting requests.

/// A namespace's number within its shard. Numbers are not used again after a namespace was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId(pub u32);

/// Names a request whose answer comes later. Ids ascend in the order in which requests began to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitId(pub u64);
