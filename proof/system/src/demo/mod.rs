//! The demonstration, in full where block devices can be had, over NBD elsewhere.

mod commits;
mod database;
mod full;
mod over_nbd;
mod postgres;
mod progress;
mod table;

pub(crate) use full::run;
