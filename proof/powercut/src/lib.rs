//! A disk in memory that keeps a history of all that was done to it, and builds from it what a
//! loss of power may leave. It also fails, fills up and hangs when told to.
//!
//! [`Disk::folder`] is a `storage::Folder`; code that keeps its data through that trait runs on it
//! unchanged. [`Disk::after`] makes the disk that a [`Cut`] leaves, and says what was lost.
//! Everything is decided by the seed of the cut: the same history and cut make the same bytes.
//!
//! # The fault model
//!
//! The history counts the beginning and the end of each call; the power goes at one such
//! [`Moment`]. Then:
//!
//! 1. A write is *kept* if it was durable by itself and had returned, or if a sync of its file
//!    began after it had returned, and returned. Kept writes are there, byte for byte.
//! 2. Of every other write that had begun, any subset of its sectors of 512 bytes is there,
//!    independent of all other writes: writes between two syncs reach the disk in any order, in
//!    part or not at all. The later of two writes to one sector is never replaced by the earlier.
//! 3. A file is as long as its last block of 4096 bytes that arrived. What it grew by and did not
//!    arrive reads as zeros, or as bytes that were written elsewhere on this disk before: recycled
//!    room with valid records of others in it.
//! 4. Files made by `create` are there whole with their name once it has returned, and before that
//!    whole or not at all. Renamings and removals are kept by the next `sync_names` that began
//!    after they had returned; any subset of the others is there, but for two changes of one name
//!    the later never without the earlier.
//! 5. After a failed sync or durable write nothing that was written since the last success is
//!    kept, whatever succeeds later. A failed write may have written any of its sectors. A failed
//!    `create` may have made the file.
//! 6. A disk that *lies once* answers one sync (or durable write, or sync of names) with success
//!    and forgets it. No log can keep its promise on such a disk, so its states are judged by a
//!    weaker rule: data may be old, or its loss may be noticed; it is never wrong.
//!
//! [`Objects`] are an object store beside the files, with the same history: an object comes and
//! goes whole, and is kept once its call has returned. One that is on its way when the power goes
//! is there or not.
//!
//! Not in the model: sectors that are torn inside their 512 bytes, writes that land in another
//! place, and bytes that decay while they are not written. [`Disk::flip_bit`] makes the last of
//! them for tests of checksums.
#![forbid(unsafe_code)]

mod fault;
mod history;
mod state;

mod folder;

mod objects;

mod disk;

mod cut;

pub use cut::{Aftermath, Cut, Loss};
pub use disk::Disk;
pub use fault::{Effect, Fault, Gate};
pub use history::Moment;
pub use objects::{LateObject, Objects};
