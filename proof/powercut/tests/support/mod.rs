//! Pools with journal and images on a simulated disk, random histories of them, and checks of
//! recovered states.

mod copies;
mod fixture;
mod full_pool;
mod history;
mod judge;
pub(crate) mod kinds;
mod objects;
mod truth;

pub(crate) use fixture::{Fixture, Place};
pub(crate) use history::History;
pub(crate) use judge::{Rule, Verdict, judge, judge_disk};
