//! The demonstrations: of volumes, in full if block devices are available and otherwise over NBD;
//! of the message log; and of SQL on topics.

mod full;
mod kcat;
mod limits;
mod log;
mod market;
mod over_nbd;
mod progress;
mod table;

pub(crate) use full::run;
pub(crate) use log::run as run_log;
pub(crate) use market::run as run_sql;
