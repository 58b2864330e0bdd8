//! Runs scenarios up to each of their stores, and checks the remaining state.

mod file;
mod judge;
mod operate;
mod scenario;

pub(crate) use file::{Ended, PoolFile};
pub(crate) use judge::{check_emptied, settle};
pub(crate) use operate::{
    compress_idle, create, delete, discard, follow, maintain, operate, snapshot, volume_name, write,
};
pub(crate) use scenario::{Explored, Points, Scenario};
