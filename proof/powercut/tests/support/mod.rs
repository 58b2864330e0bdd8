//! Pools with journal and images on a simulated disk, random histories of them, and their judge.

mod copies;
mod full_pool;
mod history;
mod judge;
pub(crate) mod kinds;
mod objects;
mod site;
mod truth;

pub(crate) use history::History;
pub(crate) use judge::{Rule, Verdict, judge, judge_disk};
pub(crate) use site::{Place, Site};
