//! The engine in this process: each case beside copies of bare memory, round by round.
//!
//! A round measures the floor, then the engine, so that a slow spell of the machine meets both.
//! Means come from batches without a clock inside; percentiles from rounds of their own in which
//! each request is timed, which adds the cost of the clock (some 25 ns) to each. What the engine
//! does in the background is done between the rounds and told apart.

mod figures;
mod measure;
mod meter;
mod setup;
mod suite;

pub(crate) use suite::{Arguments, describe, plan, run};
