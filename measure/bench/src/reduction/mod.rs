//! Measurement and estimation of data reduction.
//!
//! The estimator reads a file, device or live volume and reports the memory that it would use,
//! without storing it and in bounded memory. The comparison stores the same data on a volume and on
//! zram, and measures the memory of both after background compression has finished.

mod distinct;
mod estimate;
mod programs;
mod progress;
mod source;
mod stored;
mod suite;
mod tables;
mod volume;

pub(crate) use estimate::{Estimate, Estimator};
pub(crate) use suite::{Arguments, plan, run};
pub(crate) use tables::describe;
