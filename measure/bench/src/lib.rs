//! Benchmark suites for Memlane and its alternatives on this machine: the library of
//! `memlane-bench`.
#![forbid(unsafe_code)]

mod advise;
mod aligned;
mod case;
mod clock;
mod command;
mod compare;
mod contents;
mod corpus;
mod cpio;
mod doctor;
mod durability;
mod engine;
mod fio_step;
mod floor;
mod forsa;
mod fusion;
mod latency;
mod log;
mod medians;
mod output;
mod pace;
mod page;
mod peers;
mod placement;
mod pool;
mod program;
mod project;
mod reduction;
mod run;
mod sql;
mod steps;
pub mod targets;
mod tpcc;

pub use program::run_program;
