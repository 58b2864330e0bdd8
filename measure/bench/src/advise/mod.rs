//! `advise`: estimates which part of a running PostgreSQL would benefit from fast storage, without
//! moving it.
//!
//! The server's statistics show reads, writes and syncs of each part. A sample of its files shows
//! their reduction in a pool. Nothing is written: sessions are read-only.

mod advice;
mod command;
mod counters;
mod sample;
mod server;

pub(crate) use command::{Arguments, run};
