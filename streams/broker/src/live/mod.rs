//! Live queries: each record is read once as it is committed, and an index of the filters of all
//! live queries on its topic finds those that it is for.
//!
//! ```text
//! partitions ─▶ Worker: Table (one for the log, one for the current values of a topic)
//!                         │ Row::read, FilterIndex        rows
//!                         └──────────▶ Subscriber ◀──────────── LiveStream ─▶ connection
//!                                      (Subscription)  ▲ takes
//!                                                      └ Fill: the past, read as the client takes
//! ```
//!
//! A subscription begins with what is there: its connection reads that from the log, or from a
//! snapshot of the current values, as fast as the client takes it. Then a worker takes it in,
//! between two reads, so that it has no gap and nothing twice. A client of a log that does not keep
//! up is let go and reads on by itself from where it stopped; one of current values has a bounded
//! backlog.
//!
//! Topics without live queries cost nothing here: no worker looks at them. Lock order: commands of
//! a worker, paths of a shared table, a subscriber's machine; none is held across an await.

mod begin;
mod counters;
mod cursor;
mod fill;
mod points;
mod rows;
mod service;
mod stream;
mod subscriber;
mod table;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use counters::LiveTotals;
pub(crate) use service::{LiveClient, LiveLimits, LiveQueries};
pub(crate) use worker::LiveThreads;
