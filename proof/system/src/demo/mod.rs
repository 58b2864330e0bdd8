//! The demonstration, in full where block devices can be had, over NBD elsewhere.

mod full;
mod over_nbd;
mod progress;
mod table;

pub(crate) use full::run;
