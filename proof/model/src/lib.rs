//! The simplest correct volume, to compare real ones with, and the requests to compare them under.
//!
//! A [`ModelVolume`] keeps blocks in an ordered map behind one lock. A [`Schedule`] is a list of
//! operations that a seed makes, the same in every run. A test of a real device runs both and
//! compares the answers; [`check_same`] and [`check_old_or_new`] compare what is left.
//!
//! Knows the contract of block devices and nothing of any engine. Runs out of no memory: where the
//! real device may, the test lets the model follow it.
#![forbid(unsafe_code)]

mod compare;
mod contents;
mod pool;
mod request;
mod schedule;
mod seeds;
mod state;
mod volume;

pub use compare::{check_old_or_new, check_same, check_same_block, is_same, observe};
pub use contents::{Contents, Texture};
pub use pool::{ModelPool, ModelRefusal, Shrink};
pub use random::Random;
pub use request::{Answer, Request};
pub use schedule::{Operation, Reopening, SLOT_COUNT, SNAPSHOT_COUNT, Schedule, ScheduleShape};
pub use seeds::{
    FRESH_SEEDS_VARIABLE, SEED_COUNT_VARIABLE, SEED_VARIABLE, for_each_seed, for_each_seed_at_once,
};
pub use volume::{ModelVolume, Promise};

/// One block's contents.
pub type Block = [u8; block_device::BLOCK_BYTES];
