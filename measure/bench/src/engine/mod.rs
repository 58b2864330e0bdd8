//! The engine in this process: each case compared with copies of bare memory, in rounds.
//!
//! A round measures the floor, then the engine, so that a slow period of the machine affects both.
//! Means are from batches without clock readings. Percentiles are from separate rounds that time
//! each request, which adds the cost of the clock (about 25 ns). The engine's background work is
//! done between rounds and reported separately.

mod figures;
mod measure;
mod meter;
mod setup;
mod suite;

pub(crate) use suite::{Arguments, describe, plan, run};
