//! Reduction of data.
//!
//! The estimator reads a file, a device or a live volume and says what it would take, without
//! storing anything and in bounded memory. The comparison stores the same bytes on a volume and on
//! zram and counts the memory of both, once what is compressed in the background has settled.

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
