//! The broker behind the console: what topics and groups there are, by its HTTP interface, and
//! queries over topics, by SQL. It decides about no caller; it never changes what the broker has.

mod interface;
mod place;
mod queries;
mod records;

pub(crate) use interface::Interface;
pub(crate) use place::HttpPlace;
pub(crate) use queries::{AskedFor, Queries, QueryError, SqlPlace};
pub(crate) use records::{NewRecord, WriteError};
