//! Pools with journal and images on a simulated disk, random histories of them, and their judge.

mod copies;
mod history;
mod judge;
mod site;
mod truth;

pub(crate) use history::History;
pub(crate) use judge::{Verdict, judge, judge_disk};
pub(crate) use site::Site;
