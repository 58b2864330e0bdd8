//! A pool in memory, its journal and its images, as one.
//!
//! ```text
//!                 ┌────────── flushes ──────────▶ journal ──┐
//!  pool (memory) ─┤                                         ├─▶ after a loss of power: a pool
//!                 └─ saves, checkpoints, schedule ▶ images ─┘
//! ```
//!
//! A [`DurableSet`] ties the three together by an id. While memory lives, also through the death of
//! the process, memory is right and stable storage follows. When memory is gone, the newest image
//! comes first, then what the journal has of the time after it; volumes are served at once and
//! their contents fetched as they are touched.
//!
//! It starts no thread and reads no clock; the owner calls what has to be done now and then.
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
