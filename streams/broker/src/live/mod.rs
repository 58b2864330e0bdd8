//! Live queries: each committed record is read once, and an index of the filters of all live
//! queries on its topic finds the matching ones.
//!
//! ```text
//! partitions ─▶ Worker: Table (one for the log, one for the current values of a topic)
//!                         │ Row::read, FilterIndex        rows
//!                         └──────────▶ Subscriber ◀──────────── LiveStream ─▶ connection
//!                                      (Subscription)  ▲ takes
//!                                                      └ Fill: the past, read as the client takes
//! ```
//!
//! A subscription starts with existing rows: its connection reads them from the log, or from a
//! snapshot of the current values, at the client's speed. Then a worker adopts the subscription
//! between two reads, so that there are no gaps or duplicates. A subscription to a log whose client
//! is too slow is released, and its connection continues reading from that position. A subscription
//! to current values has a bounded backlog.
//!
//! Topics without live queries cause no work here. Lock order: a worker's commands, paths of a
//! shared table, a subscriber's machine. None is held across an await.

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
