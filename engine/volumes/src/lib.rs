//! Addresses in, page references out: volumes on one pool.
//!
//! An [`Engine`] owns a pool in a region, and the volumes in it. It reads no clock, draws no
//! randomness and starts no thread: its owner calls [`Engine::maintain`] periodically.
//!
//! Each folder is a layer that uses only the layers below it:
//!
//! ```text
//!  admin    Engine: the lists of volumes; snapshots, sizes, classes, background work
//!  device   Volume: read, write, discard, flush, and the services of the engine's owner
//!  space    Space: finding memory in a full pool
//!  walks    over maps: compression, evacuation, captures, leak check, integrity
//!  map      VolumeMap: the page of each block, and all changes to it
//!  pool     Pool: pages, locks, leaks, fill levels
//! ```
//!
//! Lock order: resizing, administration, shortage, maintenance, leak search, frozen copies,
//! evacuation, compression, lane, block, path, moves, leak check; the pool's own come after them.
//! The lists of volumes, maps and free records, and a volume's counts, are locked last, for one
//! lookup or change. Readers take none.
#![forbid(unsafe_code)]

mod admin;
mod blocks;
mod device;
mod error;
mod map;
mod pool;
mod space;
mod spec;
#[cfg(test)]
mod tests;
mod visits;
mod walks;

pub use admin::engine::Engine;
pub use admin::frozen::Frozen;
pub use admin::maintenance::Work;
pub use admin::pool_size::ResizeProgress;
pub use admin::saved::{SavedVolume, Settles};
pub use admin::usage::{PoolUsage, Recovery};
pub use device::absent::{BroughtIn, GivenUp, LeftBlock};
pub use device::hooks::{
    FetchedPages, FlushTarget, Found, HookError, PageSource, SourceError, SourceErrorKind,
};
pub use device::volume::Volume;
pub use error::{DURABLE_COUNT_MAX, VolumeError, VolumeErrorKind};
pub use map::stored::FilledBlock;
pub use map::table::{ImageBase, SetId};
pub use map::view::{BlockView, StoredBytes, VolumeUsage};
pub use map::volume_map::VolumeMap;
pub use page_store::{OpenError, OpenErrorKind, ResizeError, ResizeErrorKind};
pub use pool::level::{PoolLevel, steps_after};
pub use spec::{
    CapacityClass, Durability, EngineOptions, NAME_BYTES_MAX, Reduction, SIZE_BYTES_MAX,
    ShrinkPolicy, VolumeMirror, VolumeName, VolumeSpec, place_of,
};
pub use walks::capture::{Capture, CaptureWalk, CapturedContents, CapturedPage};
pub use walks::integrity::{CopyPlace, DamageReport, DamagedBlock, Healer, Scrubbed};
