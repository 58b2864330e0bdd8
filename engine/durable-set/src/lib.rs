//! A pool in memory, its journal and its images, as one.
//!
//! ```text
//!                 ┌────────── flushes ──────────▶ journal ──┐
//!  pool (memory) ─┤                                         ├─▶ after a loss of power: a pool
//!                 └─ saves, checkpoints, schedule ▶ images ─┘
//! ```
//!
//! A [`DurableSet`] ties the three together by an id. While memory is intact, also after the death
//! of the process, memory is authoritative and stable storage follows. When memory is gone, volumes
//! are restored from the newest image, and then from the part of the journal that follows it; they
//! are served at once and their contents are fetched when they are first read.
//!
//! This crate starts no thread and reads no clock; the owner calls its periodic work.
//!
//! Modules stand in levels, each naming none below it: what stable storage has, and a pool from it;
//! the set; what is done with it.
#![forbid(unsafe_code)]

mod error;

mod healer;
mod keys;
mod newest;
mod reliance;
mod replay;
mod shipped;

mod restore;
mod unfetched;

mod set;

mod changes;
mod open;
mod save;
mod shipping;
mod status;
mod stream;

pub use error::{DurableError, DurableErrorKind, causes};
pub use keys::open_key;
pub use newest::AcceptedImage;
pub use open::{DurableSpec, Looked, Opened, Opening};
pub use reliance::Missing;
pub use replay::Replayed;
pub use save::{Extent as SaveExtent, SaveRequest};
pub use set::DurableSet;
pub use shipped::{Gap, ShippedJournal, Verified};
pub use shipping::{Lag, Shipped, Shipper};
pub use status::{ClassLoss, HoldUp};
pub use stream::Streamed;
pub use unfetched::{Unfetched, UnfetchedObject};
