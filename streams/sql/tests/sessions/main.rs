//! State that a client's session has between its statements: transactions, what they set, and
//! answers that are whole however they end.

#[path = "../support/mod.rs"]
mod support;

mod cut;
mod ended;
mod raw;
mod stale;
mod transactions;
