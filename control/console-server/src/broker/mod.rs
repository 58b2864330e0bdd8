//! The broker behind the console: what topics and groups there are, by its HTTP interface; queries
//! over topics and records to be written, by SQL; offsets of groups to be reset, by Kafka's protocol.
//! It decides about no caller.

mod interface;
mod offsets;
mod place;
mod queries;
mod records;

pub(crate) use interface::Interface;
pub(crate) use offsets::{Offsets, ResetError};
pub(crate) use place::HttpPlace;
pub(crate) use queries::{AskedFor, Queries, QueryError, SqlPlace};
pub(crate) use records::{NewRecord, WriteError};
