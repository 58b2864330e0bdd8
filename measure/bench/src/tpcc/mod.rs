//! The suite `tpcc`: order processing on a database, derived from TPC-C.
//!
//! Schema, data and the five transactions follow the TPC-C specification. Runs do not follow its
//! rules on terminals, pricing and audits. Therefore the suite and its figures are called
//! TPC-C-derived, and its rate NOPM: new orders per minute, as counted by the database. A run is
//! void if the database is inconsistent afterwards, or counts different orders than the driver.

mod clones;
mod conditions;
mod database;
mod draw;
mod drive;
mod input;
mod instance_set;
mod load;
mod mariadb;
mod meter;
mod pgbench;
mod plain;
mod postgresql;
mod record;
mod rows;
mod schema;
mod sqlite;
mod suite;
mod tables;

pub(crate) use conditions::violated;
pub(crate) use database::{Clerk, Database, Engine, Fill, NAME, Observe, Reporting, Way};
pub(crate) use draw::Constants;
pub(crate) use drive::{Load, Measured, Pacing, drive, sleep_until};
pub(crate) use input::Mix;
pub(crate) use instance_set::{
    Host, LOAD_SECONDS, LOAD_SECONDS_PER_WAREHOUSE, LOADED_BYTES_PER_WAREHOUSE, folder_bytes,
    missing_server, size_bytes,
};
pub(crate) use load::{Extent, load};
pub(crate) use mariadb::Mariadb;
pub(crate) use meter::Window;
pub(crate) use pgbench::rush;
pub(crate) use postgresql::{Connection, Copy, Postgresql};
pub(crate) use record::{About, OWN_DRIVER, row};
pub(crate) use suite::{Arguments, mark_length, plan};
pub(crate) use tables::describe;
