//! Answers on their way to a client, in the order of its requests.

use std::pin::Pin;

use super::fetch::FetchJob;
use crate::topics::Pending;

/// Answer to a request.
pub(crate) enum Answer {
    /// A whole frame.
    Ready(Vec<u8>),
    Produced(ProducedAnswer),
    Fetch(Box<FetchJob>),
    /// Made when all answers before it have gone. `None`: the request cannot be read.
    Later(Pin<Box<dyn Future<Output = Option<Vec<u8>>> + Send>>),
}

/// A frame that goes out when what it acknowledges is stable.
pub(crate) struct ProducedAnswer {
    pub(crate) frame: Vec<u8>,
    pub(crate) waits: Vec<Wait>,
    pub(crate) timeout_ms: i32,
}

/// A partition whose error code in the frame depends on a flush.
pub(crate) struct Wait {
    pub(crate) pending: Pending,
    pub(crate) error_at: usize,
}
