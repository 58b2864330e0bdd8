//! A pool that follows an image store which another daemon writes to, and takes over from it.
//!
//! ```text
//!  image store ──▶ choose the newest image ──▶ bring maps to it ──▶ fetch what changed
//!                                                                        │ all of it is there
//!                               promote: claim the store,                ▼
//!                               newest image, pool is a set's ◀── generation, for readers
//! ```
//!
//! Invariants:
//! - Until it is promoted, nothing in the store is made, changed or removed.
//! - Readers see a [`Generation`]: all volumes as one image has them, complete. They keep it while
//!   the next one is fetched, unless the pool is short of memory.
//! - The pool is marked as one that is being restored until it is promoted: a daemon that opens it
//!   as its own restores it from the newest image, and never takes it for newer than that.
//! - A volume names the image that it holds as its base, also across a kill. One whose map was
//!   being brought to another has no base, and is fetched anew.
//!
//! It starts no thread and reads no clock: the owner calls [`Follower::follow`] now and then.
//!
//! Modules stand in levels, each naming none below it: the store and its key; the choice of an
//! image; volumes that become those of an image; the journal that was shipped after it; the
//! follower.
#![forbid(unsafe_code)]

mod error;

mod key;

mod choice;

mod adoption;

mod continuation;

mod follower;
mod generation;
mod promotion;

pub use continuation::Continued;
pub use durable_set::Gap;
pub use error::{StandbyError, StandbyErrorKind};
pub use follower::{Follower, FollowerSpec, Progress, Step};
pub use generation::Generation;
pub use promotion::{NoteError, Promoted};
