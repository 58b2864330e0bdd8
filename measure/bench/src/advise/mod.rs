//! `advise`: which part of a running PostgreSQL would be worth fast storage, without moving any.
//!
//! Its statistics tell which part is read, written and synced how much, and a sample of its files
//! how much smaller they get in a pool. Nothing is written: sessions are read-only.

mod advice;
mod command;
mod counters;
mod sample;
mod server;

pub(crate) use command::{Arguments, run};
