//! Validation of the lengths and counts in a request's body, before it is decoded.
//!
//! Decoders of `kafka-protocol` reserve memory for as many elements as a count on the wire claims:
//! 20 bytes that claim 2^31 topics abort the process. [`check`] validates a body against the
//! description of its request, and rejects counts and lengths that exceed the body. It allocates no
//! memory, and its recursion is bounded by the nesting of the descriptions. Contents of strings are
//! not checked: the decoder validates UTF-8.
//!
//! The descriptions follow Apache Kafka's message schemas, and KIP-482 for flexible versions. The
//! decoder consumes exactly the bytes that were validated.

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
