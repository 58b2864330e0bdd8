//! Query engine and its integration with topics: tables, filter pushdown, functions, memory.
//!
//! ```text
//! Session ─▶ Catalog ─▶ LogTable ─▶ LogScan ─▶ LogReader ─▶ record-log
//!    │                                  └─▶ CurrentReader ─▶ values
//!    │         └─▶ pg_catalog
//!    └─▶ statements become plans, plans become streams of record batches
//! ```

mod catalog;
mod clock;
mod columns;
mod contained;
mod current_reader;
mod dialect;
mod empty_groups;
mod errors;
mod float_sums;
mod functions;
mod giving_way;
mod growing;
mod join_keys;
mod json;
mod json_fields;
mod log_reader;
mod log_scan;
mod log_table;
mod memory;
mod names;
mod null_keys;
mod operator;
mod ordered;
mod past;
mod percentiles;
mod pg_catalog;
mod pins;
mod planners;
mod point_read;
mod pushdown;
mod regressions;
mod sequence;
mod session;
mod slices;
mod spreads;
mod sums;
mod typed_view;
mod windows;
mod wording;
mod workers;

pub(crate) use columns::BYTES_SUFFIX;
pub(crate) use dialect::{Inferred, inferred_types, json_parameters, value_of_parameter};
pub(crate) use functions::SERVER_VERSION;
pub(crate) use names::SCHEMA;
pub(crate) use past::AS_OF;
pub(crate) use pg_catalog::{
    Activity, Assigned, Connected, ON_BEHALF_OF, READ_ONLY, StatementTotals, TRANSACTION_READ_ONLY,
    Viewer, switch,
};
pub(crate) use point_read::PointRead;
pub(crate) use session::{Analyze, Engine, Session, text_rows, text_schema};
