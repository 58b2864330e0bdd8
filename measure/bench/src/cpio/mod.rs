//! The suite `cpio`: CPU cycles per I/O of applications, on volumes and alternatives.
//!
//! Measures processor time of the whole machine while an application works and its writes are
//! flushed, minus the machine's idle consumption, divided by sectors transferred at the block
//! device. Results of applications are verified after each run, outside the measurement.

mod application;
mod applications;
mod bandwidth;
mod data;
mod measure;
mod orders;
mod search;
mod stores;
mod streams;
mod suite;
mod tables;
mod workdir;

pub(crate) use suite::{Arguments, plan};
pub(crate) use tables::describe;
