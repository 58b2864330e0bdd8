//! Addresses in, page references out: volumes on one pool.
//!
//! An [`Engine`] owns a pool in a region and the volumes in it. It reads no clock, draws no
//! randomness and starts no thread: its owner calls [`Engine::maintain`] now and then.
//!
//! Lock order: resizing, administration, shortage, maintenance, frozen copies, evacuation,
//! compression, lane, block, path, moves, leak check; the pool's own come after them. Readers take
//! none.
#![forbid(unsafe_code)]

mod absent;
mod capacity;
mod capture;
mod compress;
mod copies;
mod counts;
mod diff;
mod discard;
mod durable;
mod engine;
mod error;
mod evacuate;
mod frozen;
mod hooks;
mod integrity;
mod leaf_cache;
mod leaf_marks;
mod leak_check;
mod level;
mod load;
mod locks;
mod maintain;
mod map;
mod measure;
mod node_moves;
mod own;
mod read;
mod resize;
mod runs;
mod shared;
mod spec;
mod table;
mod unmark;
mod usage;
mod view;
mod volume;
mod write;

pub use absent::{BroughtIn, GivenUp, LeftBlock};
pub use capture::{Capture, CaptureWalk, CapturedContents, CapturedPage, StoredBytes};
pub use durable::FilledBlock;
pub use engine::Engine;
pub use error::{VolumeError, VolumeErrorKind};
pub use frozen::Frozen;
pub use hooks::{
    FetchedPages, FlushTarget, Found, HookError, PageSource, SourceError, SourceErrorKind,
};
pub use integrity::{CopyPlace, DamageReport, DamagedBlock, Healer, Scrubbed};
pub use level::{PoolLevel, steps_after};
pub use maintain::Work;
pub use page_store::{OpenError, OpenErrorKind, ResizeError, ResizeErrorKind};
pub use resize::ResizeProgress;
pub use spec::{
    CapacityClass, Durability, EngineOptions, NAME_BYTES_MAX, Reduction, SIZE_BYTES_MAX,
    ShrinkPolicy, VolumeName, VolumeSpec, place_of,
};
pub use table::{ImageBase, SetId};
pub use usage::{PoolUsage, Recovery, VolumeUsage};
pub use view::BlockView;
pub use volume::Volume;
