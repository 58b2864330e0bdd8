//! State of a session between statements: transactions, settings, and complete responses however
//! statements end.

#[path = "../support/mod.rs"]
mod support;

mod cut;
mod ended;
mod raw;
mod settings;
mod stale;
mod transactions;
