//! The suite `cpio`: CPU cycles per I/O of applications, on volumes and on what others offer.
//!
//! Processor time of the whole machine while an application does its work and that work is written
//! back, less what the machine uses when idle, over sectors moved at the block device. Results of
//! applications are verified after each run, outside of what is counted.

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
