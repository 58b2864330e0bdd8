//! An engine beside the model, in a real file.

#![allow(dead_code, unused_imports, reason = "each test takes what it needs")]

mod history;
mod pair;
mod pool;
mod promises;

pub(crate) use history::History;
pub(crate) use pair::{Done, Pair};
pub(crate) use pool::{Pool, check_sound_when_empty, check_sums, compress_idle, settle};
