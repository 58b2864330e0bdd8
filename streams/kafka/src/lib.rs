//! Kafka's wire protocol as a broker needs it: frames, the versions that are served, and Produce
//! and Fetch without a copy. All other requests are those of `kafka-protocol`.
#![forbid(unsafe_code)]

pub mod fetch;
mod frame;
pub mod produce;
pub mod shapes;
mod versions;
mod wire;

pub use frame::{
    LENGTH_BYTES, RequestHeader, bare_message_bytes, begin_response, end_response, frame_bytes,
};
pub use versions::{SERVED, Served, is_served};

/// Fault in the bytes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("a frame's length is not that of a request, or above the limit")]
    FrameLength,
    #[error("a length in the request does not fit the bytes that are there")]
    Length,
    #[error("a string in the request is not UTF-8")]
    Text,
}
