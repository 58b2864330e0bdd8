//! Pending replies to a client, in the order of its requests.

use std::pin::Pin;

use super::fetch::FetchJob;
use crate::topics::Pending;

/// Reply to a request.
pub(crate) enum Answer {
    /// A complete frame.
    Ready(Vec<u8>),
    Produced(ProducedAnswer),
    Fetch(Box<FetchJob>),
    /// Executed after all earlier replies were sent. `None` if the request cannot be decoded.
    Later(Pin<Box<dyn Future<Output = Option<Vec<u8>>> + Send>>),
}

/// Response that is sent when the records that it acknowledges are stable.
pub(crate) struct ProducedAnswer {
    pub(crate) frame: Vec<u8>,
    pub(crate) waits: Vec<Wait>,
    pub(crate) timeout_ms: i32,
}

/// Partition whose error code in the frame depends on a flush.
pub(crate) struct Wait {
    pub(crate) pending: Pending,
    pub(crate) error_at: usize,
}
