//! Why a volume is not exported.

use std::io;
use std::path::PathBuf;

use crate::export::QUEUE_COUNT_MAX;

/// Why an export was not started. Display says what to do where something can be done.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("a disk cannot have {count} queues; 1 to {QUEUE_COUNT_MAX} are possible")]
    QueueCount { count: u16 },
    #[error("all {thread_count_max} threads for disks of virtual machines are taken; export fewer")]
    TooManyThreads { thread_count_max: usize },
    #[error("the socket {} is served by another process", path.display())]
    SocketInUse { path: PathBuf },
    #[error("{} is in the way: it is no socket; move it", path.display())]
    NotASocket { path: PathBuf },
    #[error("cannot listen on {}", path.display())]
    Listen {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot start what serves a virtual machine")]
    Start {
        #[source]
        source: io::Error,
    },
}
