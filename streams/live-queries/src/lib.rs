//! SQL on the records of a topic as they come: filters, live queries and incremental aggregates.
//!
//! ```text
//! statement ─▶ Query::compile ─▶ Query ─▶ Filter ─▶ FilterIndex (all queries of a topic)
//!                   │ paths                              │ which queries a record is for
//!                   ▼                                    ▼
//! record ─────▶ Row::read (JSON, once for all) ─▶ Change ─▶ Subscription, View ─▶ rows
//! ```
//!
//! A table is a topic's log or its current values. Queries are compiled for it, with the JSON
//! paths that they want taken from the [`Paths`] of the topic; each record is then read once, as a
//! [`Row`], and the [`FilterIndex`] finds the queries that it passes. A [`Subscription`] turns
//! changes into rows for one client; a [`View`] turns them into changes of a result, for topics
//! that are derived.
//!
//! Types and semantics are PostgreSQL 15's where `docs/guides/live-queries.md` names no difference.
//! What is not supported is refused when a query is made, with the SQLSTATE, never at a record. All
//! is bounded: by [`limits`], and by what the owner hands in.
//!
//! It knows no network, reads no clock and starts no thread: times are handed in.
#![forbid(unsafe_code)]

mod error;
mod expr;
mod index;
mod json;
pub mod letters;
pub mod limits;
mod query;
mod result;
mod row;
mod scalar;
mod statement;
mod subscription;
mod table;
mod types;

pub use error::{RowError, SqlError, SqlState};
pub use expr::is_like;
pub use index::{FilterId, FilterIndex, Found};
pub use json::{
    Contained, ContainedNumber, ContainedText, Fields, InvalidEscape, JsonStep, NumberType, PathId,
    Paths, Step, find_json, scalar_text,
};
pub use query::{Filter, Join, OutputColumn, Query, QuerySources};
pub use result::{Change, GroupLimits, ResultChange, ResultRow, View};
pub use row::{Header, Record, Row};
pub use scalar::Value;
pub use statement::{
    AsOf, Backpressure, CopyFormat, CreateAs, CreateKind, Envelope, Fetch, FetchCount, OnError,
    Point, Reach, Statement, Subscribe, SubscribeOptions, parse_query, parse_statement,
};
pub use subscription::{
    Event, Layout, OutputRow, OutputRows, QueueLimits, Replay, RowReader, Step as SubscriptionStep,
    Subscription,
};
pub use table::{ColumnSource, Table, TableColumn, TableKind};
pub use types::Type;
