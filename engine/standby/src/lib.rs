//! Standby: a pool that follows an image store to which another daemon writes, and can take over
//! from it.
//!
//! ```text
//!  image store ──▶ choose the newest image ──▶ update maps ──▶ fetch changed contents
//!                                                                        │ when complete
//!                               promote: claim the store,                ▼
//!                               adopt the newest image ◀───────── generation, for readers
//! ```
//!
//! Invariants:
//! - Until promotion, nothing in the store is created, changed or removed.
//! - Readers see a [`Generation`]: all volumes as of one image, complete. They keep it while the
//!   next one is fetched, unless the pool runs short of memory.
//! - Until promotion the pool is marked as being restored. A daemon that opens it as its own
//!   therefore restores it from the newest image, and never takes it for newer than that.
//! - A volume's base is the image whose contents it holds, even after a kill. A volume whose map is
//!   being updated has no base, and is fetched again after an interruption.
//!
//! This crate starts no thread and reads no clock. The owner calls [`Follower::follow`] regularly.
//!
//! Modules form layers, from the bottom: the store and its key, selection of an image, adoption of
//! an image's volumes, the shipped journal after it, the follower, the return of a former writer. A
//! module uses only layers below it.
#![forbid(unsafe_code)]

mod error;

mod key;

mod choice;

mod adoption;

mod continuation;

mod follower;
mod generation;
mod promotion;

mod rejoining;

pub use continuation::Continued;
pub use durable_set::Gap;
pub use error::{StandbyError, StandbyErrorKind};
pub use follower::{Follower, FollowerSpec, Progress, Step};
pub use generation::Generation;
pub use promotion::{LossPolicy, NoteError, Promoted};
