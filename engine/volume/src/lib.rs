//! Addresses in, page references out: volumes on one pool.
//!
//! An [`Engine`] owns a pool in a region and the volumes in it. It reads no clock, draws no
//! randomness and starts no thread: its owner calls [`Engine::maintain`] now and then.
//!
//! Lock order: administration, maintenance, shortage, compression, lane, block, sweep; the pool's
//! own come after them. Readers take none.
#![forbid(unsafe_code)]

mod compress;
mod counts;
mod discard;
mod engine;
mod error;
mod evacuate;
mod leaf_cache;
mod locks;
mod maintain;
mod map;
mod measure;
mod read;
mod shared;
mod spec;
mod sweep;
mod table;
mod untried;
mod usage;
mod volume;
mod write;

pub use engine::Engine;
pub use error::{VolumeError, VolumeErrorKind};
pub use maintain::Work;
pub use page_store::{OpenError, OpenErrorKind};
pub use spec::{
    EngineOptions, NAME_BYTES_MAX, Reduction, SIZE_BYTES_MAX, ShrinkPolicy, VolumeName, VolumeSpec,
};
pub use usage::{PoolUsage, Recovery, VolumeUsage};
pub use volume::Volume;
