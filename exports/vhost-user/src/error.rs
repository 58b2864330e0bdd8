//! Why a volume is not exported.

use export_kit::StartError;

use crate::disk::QUEUE_COUNT_MAX;

/// Why an export was not started. Display says what to do where something can be done.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("a disk cannot have {count} queues; 1 to {QUEUE_COUNT_MAX} are possible")]
    QueueCount { count: u16 },
    #[error("all {thread_count_max} threads for disks of virtual machines are taken; export fewer")]
    TooManyThreads { thread_count_max: usize },
    #[error(transparent)]
    Start(#[from] StartError),
}
