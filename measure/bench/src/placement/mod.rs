//! The suite `placement`: which part of a database is worth fast storage.
//!
//! One database is loaded once and copied for each measurement, with all of it, its log, its
//! temporary tables, or nothing on fast storage and the rest on slow storage. Two workloads run on
//! it with more and more users until that brings nothing: orders, derived from TPC-C, and reports,
//! which sort and join more than memory holds. The server's memory is limited, files included, so
//! that no cache stands in for storage; where it cannot be limited the rows are invalid.

mod engines;
mod fast;
mod measure;
mod reports;
mod running_copy;
mod suite;
mod survival;
mod tables;

pub(crate) use suite::{Arguments, plan};
pub(crate) use tables::describe;
