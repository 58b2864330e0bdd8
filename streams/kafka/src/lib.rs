//! Server side of Kafka's wire protocol: frames, supported API versions, and zero-copy parsing and
//! encoding of Produce and Fetch. All other requests use the crate `kafka-protocol`.
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

/// Malformed bytes in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("invalid request size: too small or above the limit")]
    FrameLength,
    #[error("invalid length in the request: it does not fit the remaining bytes")]
    Length,
    #[error("a string in the request is not UTF-8")]
    Text,
}
