//! A pool in memory with its journal and images as one durable unit.
//!
//! ```text
//!                 ┌────────── flushes ──────────▶ journal ──┐
//!  pool (memory) ─┤                                         ├─▶ after a power loss: a pool
//!                 └─ saves, checkpoints, schedule ▶ images ─┘
//! ```
//!
//! A [`DurableSet`] connects the three by a common id. While memory is intact, even after the
//! process died, memory is authoritative and stable storage follows. After memory was lost, volumes
//! are restored from the newest image and then from the part of the journal after it. They are
//! served immediately, and their contents are fetched on first read.
//!
//! This crate starts no thread and reads no clock. The owner calls its periodic work.
//!
//! Modules form layers, from the bottom: contents of stable storage and restoring a pool from it,
//! the set, operations on it. A module uses only layers below it.
#![forbid(unsafe_code)]

mod error;

mod healer;
mod keys;
mod mirror;
mod newest;
mod own_claim;
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
pub use mirror::{Mirror, MirrorError, MirrorOptions, MirrorPolicy, MirrorState, MirrorStatus};
pub use newest::AcceptedImage;
pub use open::{DurableSpec, LastKnown, Looked, Opened, Opening, ReportRestore};
pub use own_claim::OwnClaim;
pub use reliance::Missing;
pub use replay::Replayed;
pub use save::{Extent as SaveExtent, SaveRequest};
pub use set::DurableSet;
pub use shipped::{Gap, ShippedJournal, Verified};
pub use shipping::{Lag, Shipped, Shipper};
pub use status::{ClassLoss, HoldUp};
pub use stream::Streamed;
pub use unfetched::{Unfetched, UnfetchedObject};
