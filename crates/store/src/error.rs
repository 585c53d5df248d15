//! The errors of the store, and when an operation may be retried.

/// A failure of the store. It concerns the machine, the files or the database, never a request.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The operating system returned an error.
    #[error("{action} {path}")]
    Io {
        /// What was attempted, as a participle: "reading", "syncing".
        action: &'static str,
        /// The file or directory.
        path: String,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// Stored data is damaged: what was read is not what was written.
    #[error("damaged data in {path} at offset {offset}: {detail}")]
    Corrupt {
        /// The file, or the part of the table, that is damaged.
        path: String,
        /// Offset of the damage in the file, in bytes.
        offset: u64,
        /// A description of the damage, for operators.
        detail: String,
    },
    /// The table's database failed; the text is its own error message.
    #[error("the table failed: {0}")]
    Table(String),
    /// The directory or database cannot be used as it is. For example, it has another version or another number of
    /// shards, or another process uses it. Retrying does not help.
    #[error("{0}")]
    Unusable(String),
    /// Another node owns the shard, so this node must not open or change it.
    #[error("another node owns the shard")]
    NotOwned,
    /// The store has less of the shard than this node has seen there: it has gone back to an older state.
    #[error("the store has gone back to an older state")]
    WentBack,
    /// The store failed earlier, cannot be reached, or is being closed. Retrying may help.
    #[error("the store is not available: {0}")]
    Unavailable(String),
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: impl Into<String>, source: std::io::Error) -> Self {
        StoreError::Io { action, path: path.into(), source }
    }

    /// Whether the cause is a full disk or an exhausted quota.
    pub(crate) fn is_full(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, StoreError::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }

    /// A copy of the error, for each caller that waits for the same operation.
    pub(crate) fn again(&self) -> Self {
        match self {
            StoreError::Io { action, path, source } => {
                let source = match source.raw_os_error() {
                    Some(code) => std::io::Error::from_raw_os_error(code),
                    None => std::io::Error::new(source.kind(), source.to_string()),
                };
                StoreError::Io { action, path: path.clone(), source }
            }
            StoreError::Corrupt { path, offset, detail } => {
                StoreError::Corrupt { path: path.clone(), offset: *offset, detail: detail.clone() }
            }
            StoreError::Table(detail) => StoreError::Table(detail.clone()),
            StoreError::Unusable(detail) => StoreError::Unusable(detail.clone()),
            StoreError::NotOwned => StoreError::NotOwned,
            StoreError::WentBack => StoreError::WentBack,
            StoreError::Unavailable(detail) => StoreError::Unavailable(detail.clone()),
        }
    }
}
