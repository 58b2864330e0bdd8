//! System catalogue: the tables of `pg_catalog` and `information_schema`, and their functions, with
//! which PostgreSQL's clients inspect the database.
//!
//! ```text
//! Session ─▶ rewrite     adapts PostgreSQL's catalogue queries to the engine
//!         ─▶ SystemTable ─▶ rows ─▶ Viewer ─▶ host, client
//!         ─▶ functions ───────────────┘
//! ```
//!
//! A [`Viewer`] determines what one client may see. Rows are generated when a query runs; nothing
//! is stored. `tables.txt` lists the columns of PostgreSQL 15's tables. Tables that no function in
//! `rows` fills are always empty.

mod casts;
mod definitions;
mod elements;
mod functions;
mod object_names;
mod privileges;
mod relations;
mod rewrite;
mod rows;
mod table_oids;
mod tables;
mod types;
mod viewer;
mod wildcards;

pub(crate) use definitions::{INFORMATION_SCHEMA, PG_CATALOG};
pub(crate) use functions::functions;
pub(crate) use rewrite::rewrite;
pub(crate) use tables::SystemSchema;
pub(crate) use viewer::{
    Activity, Assigned, Connected, ON_BEHALF_OF, READ_ONLY, StatementTotals, TRANSACTION_READ_ONLY,
    Viewer, switch,
};
