//! The suite `placement`: which part of a database benefits from fast storage.
//!
//! A database is loaded once and copied for each measurement. Fast storage contains the whole copy,
//! its log, its temporary tables, or nothing, and slow storage the rest. Two workloads run with
//! increasing numbers of users until saturation: orders, derived from TPC-C, and reports, whose
//! sorts and joins exceed memory. The server's memory, including its page cache, is limited, so
//! that no cache substitutes for storage. If it cannot be limited, rows are invalid.

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
