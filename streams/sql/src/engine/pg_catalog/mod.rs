//! The catalogue: the tables of `pg_catalog` and `information_schema`, and the functions on them,
//! by which clients of PostgreSQL find out what there is.
//!
//! ```text
//! Session ─▶ rewrite     PostgreSQL's way of asking becomes the engine's
//!         ─▶ SystemTable ─▶ rows ─▶ Viewer ─▶ host, client
//!         ─▶ functions ───────────────┘
//! ```
//!
//! A [`Viewer`] shows what one client may see. Rows are made when a query runs; nothing is kept.
//! `tables.txt` holds the columns of PostgreSQL 15's tables; those that no function in `rows`
//! fills are always empty.

mod definitions;
mod elements;
mod functions;
mod object_names;
mod privileges;
mod relations;
mod rewrite;
mod rows;
mod tables;
mod types;
mod viewer;

pub(crate) use definitions::{INFORMATION_SCHEMA, PG_CATALOG};
pub(crate) use functions::functions;
pub(crate) use rewrite::rewrite;
pub(crate) use tables::SystemSchema;
pub(crate) use viewer::{
    Activity, Connected, ON_BEHALF_OF, READ_ONLY, StatementTotals, TRANSACTION_READ_ONLY, Viewer,
    switch,
};
