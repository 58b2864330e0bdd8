//! Errors while an export starts.

use export_kit::StartError;

use crate::disk::QUEUE_COUNT_MAX;

/// Error that prevents the start of an export. The message says how to fix it where possible.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("invalid queue count {count}; use 1 to {QUEUE_COUNT_MAX}")]
    QueueCount { count: u16 },
    #[error(
        "too many vhost-user disks: all {thread_count_max} threads are in use; delete some \
             exports"
    )]
    TooManyThreads { thread_count_max: usize },
    #[error(transparent)]
    Start(#[from] StartError),
}
