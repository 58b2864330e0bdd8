//! The shape of a request's body: which lengths and counts it may claim, before it is decoded.
//!
//! Decoders of `kafka-protocol` reserve memory for as many elements as a count on the wire claims:
//! 20 bytes that claim 2^31 topics end the process. [`check`] walks a body by the description of
//! its request and refuses what claims more than is there. It reserves nothing, and it recurses no
//! deeper than the descriptions are nested. What strings say is not looked at: UTF-8 is left to the
//! decoder.
//!
//! The descriptions follow Apache Kafka's message schemas, and KIP-482 for flexible versions. A
//! body that passes is consumed whole by the decoder.

mod check;
mod cluster_requests;
mod group_requests;
mod requests;
mod schema;
mod topic_requests;
mod transaction_requests;

pub use check::{ShapeError, ShapeFault, check};
pub use requests::{describe, requests};
pub use schema::{Count, Field, Kind, RequestShape};
