//! The broker behind the console: topics and groups by its HTTP interface, queries and records to
//! be written by SQL, resets of offsets and deletions of topics by Kafka's protocol. It decides
//! about no caller.

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
