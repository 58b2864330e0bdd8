//! The simplest correct volume, for comparisons with real ones, and requests for the comparisons.
//!
//! A [`ModelVolume`] stores blocks in an ordered map behind one lock. A [`Schedule`] is a list of
//! operations determined by a seed, the same in every run. A test of a real device runs both and
//! compares the answers. [`check_same`] and [`check_old_or_new`] compare the final states.
//!
//! The model knows the contract of block devices and no engine. It never runs out of memory: if the
//! real device may, the test updates the model to match it.
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

/// Contents of one block.
pub type Block = [u8; block_device::BLOCK_BYTES];
