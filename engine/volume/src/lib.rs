//! Addresses in, page references out: volumes on one pool.
//!
//! An [`Engine`] owns a pool in a region and the volumes in it. It reads no clock, draws no
//! randomness and starts no thread: its owner calls [`Engine::maintain`] now and then.
#![forbid(unsafe_code)]

mod engine;
mod error;
mod spec;
mod usage;
mod volume;

pub use engine::Engine;
pub use error::{VolumeError, VolumeErrorKind};
pub use spec::{
    EngineOptions, NAME_BYTES_MAX, Reduction, SIZE_BYTES_MAX, ShrinkPolicy, VolumeName, VolumeSpec,
};
pub use usage::{PoolUsage, Recovery, VolumeUsage};
pub use volume::Volume;
