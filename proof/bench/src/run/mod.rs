//! A run: steps planned first, then done one after the other, each recorded as soon as it is over.

mod plan;

pub(crate) use plan::{Cost, Plan, Profile, Step};
