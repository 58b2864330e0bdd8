//! SQL on arriving records of a topic: filters, live queries and incremental aggregates.
//!
//! ```text
//! statement ─▶ Query::compile ─▶ Query ─▶ Filter ─▶ FilterIndex (all queries of a topic)
//!                   │ paths                              │ which queries a record is for
//!                   ▼                                    ▼
//! record ─────▶ Row::read (JSON, once for all) ─▶ Change ─▶ Subscription, View ─▶ rows
//! ```
//!
//! A table is a topic's log or its current values. Queries are compiled against it; the JSON paths
//! that they need are added to the topic's [`Paths`]. Each record is then parsed once, as a
//! [`Row`], and the [`FilterIndex`] finds the queries that it passes. A [`Subscription`] converts
//! changes to rows for one client. A [`View`] converts them to changes of a result, for derived
//! topics.
//!
//! Types and semantics are those of PostgreSQL 15, except for the differences in
//! `docs/guides/live-queries.md`. Unsupported features are rejected when a query is created, with
//! an SQLSTATE, never at a record. Everything is bounded, by [`limits`] and by limits of the owner.
//!
//! The crate does no network I/O, reads no clock and starts no threads: the caller passes the time.
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
    Point, Postgres, Reach, Statement, Subscribe, SubscribeOptions, parse_query, parse_statement,
};
pub use subscription::{
    Event, Layout, OutputRow, OutputRows, QueueLimits, Replay, RowReader, Step as SubscriptionStep,
    Subscription,
};
pub use table::{ColumnSource, Table, TableColumn, TableKind};
pub use types::Type;
