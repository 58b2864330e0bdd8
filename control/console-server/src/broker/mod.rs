//! Access to the broker: topics and groups through its HTTP interface, queries and inserts through
//! SQL, offset resets and topic deletions through Kafka's protocol. This module does not authorize
//! callers.

mod interface;
mod kafka;
mod place;
mod queries;
mod records;

pub(crate) use interface::Interface;
pub(crate) use kafka::{Kafka, KafkaError};
pub(crate) use place::HttpPlace;
pub(crate) use queries::{AskedFor, Queries, QueryError, SqlPlace};
pub(crate) use records::{NewRecord, WriteError};
