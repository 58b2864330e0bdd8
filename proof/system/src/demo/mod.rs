//! The demonstrations: of volumes, in full where block devices can be had and over NBD elsewhere,
//! and of the message log.

mod full;
mod kcat;
mod log;
mod market;
mod over_nbd;
mod progress;
mod table;

pub(crate) use full::run;
pub(crate) use log::run as run_log;
