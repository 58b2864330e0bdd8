//! Parser of live-query statements, in Materialize's syntax, based on the SQL parser's tokens.
//!
//! ```sql
//! SUBSCRIBE [TO] {name | (SELECT …)} [ENVELOPE UPSERT (KEY (column, …))]
//!     [WITH (SNAPSHOT = true, PROGRESS = false, POSITION = false, EVERY = '100 ms', SPEED = 1.0,
//!            BACKPRESSURE = {wait | conflate | disconnect}, ON_ERROR = {skip | fail})]
//!     [AS OF [AT LEAST] point] [UP TO point]
//! COPY (SUBSCRIBE …) TO STDOUT [WITH (FORMAT {text | csv | binary})]
//! DECLARE name [NO SCROLL] CURSOR FOR SUBSCRIBE …
//! FETCH [FORWARD] [n | ALL] [FROM | IN] name [WITH (TIMEOUT = '1 s')]
//! CREATE TOPIC [IF NOT EXISTS] name [WITH (option = 'value', …)] AS SELECT …
//! CREATE MATERIALIZED VIEW [IF NOT EXISTS] name [WITH (…)] AS SELECT …
//! DROP {TOPIC | MATERIALIZED VIEW} [IF EXISTS] name
//! ```
//!
//! A point is a Unix time in milliseconds, a timestamp (`'2026-01-31 10:00+00'`), an offset in all
//! partitions (`OFFSET 17`), or an offset for each partition (`'0:17,1:20'`).

mod dialect;
mod options;
mod parse;
mod syntax;
mod text;

pub use dialect::Postgres;
pub use parse::{parse_query, parse_statement};
pub use syntax::{
    AsOf, CopyFormat, CreateAs, CreateKind, Envelope, Fetch, FetchCount, Point, Reach, Statement,
    Subscribe, SubscribeOptions,
};
pub use syntax::{Backpressure, OnError};
