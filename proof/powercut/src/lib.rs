//! A simulated disk in memory that records the history of all operations, and derives from it the
//! possible states after a power failure. It also fails, fills up and hangs on request.
//!
//! [`Disk::folder`] is a `storage::Folder`, so code that stores its data through that trait runs on
//! it unchanged. [`Disk::after`] creates the disk that a [`Cut`] leaves, and reports the losses.
//! Everything is determined by the seed of the cut: equal histories and cuts give equal bytes.
//!
//! # The fault model
//!
//! The history records the beginning and the end of each call. The power fails at one such
//! [`Moment`]. Then:
//!
//! 1. A write is *kept* if it was durable by itself and had returned, or if a sync of its file
//!    began after it had returned, and returned. Kept writes are present, byte for byte.
//! 2. Of every other write that had begun, any subset of its sectors of 512 bytes is present,
//!    independent of all other writes: writes between two syncs reach the disk in any order,
//!    partially or not at all. The later of two writes to one sector is never replaced by the
//!    earlier.
//! 3. A file ends with its last block of 4096 bytes that arrived. Parts by which it grew and that
//!    did not arrive read as zeros, or as bytes that were written elsewhere on this disk before:
//!    recycled space that contains valid records of other files.
//! 4. Files made by `create` exist completely with their name once it has returned, and before that
//!    completely or not at all. Renamings and removals are kept by the next `sync_names` that began
//!    after they had returned. Of the others any subset is present, but the later of two changes of
//!    one name never without the earlier.
//! 5. After a failed sync or durable write, nothing written since the last success is kept,
//!    whatever succeeds later. A failed write may have written any of its sectors. A failed
//!    `create` may have created the file.
//! 6. A disk that *lies once* answers one sync (or durable write, or sync of names) with success
//!    and ignores it. No log can keep its promises on such a disk, so its states are judged by a
//!    weaker rule: data may be old, or its loss may be detected, but it is never wrong.
//!
//! [`Objects`] are an object store beside the files, with the same history: an object is created
//! and deleted atomically, and is kept once its call has returned. An object in transit at the
//! power failure is present or not.
//!
//! Not modelled: sectors torn inside their 512 bytes, misdirected writes, and bit rot.
//! [`Disk::flip_bit`] simulates bit rot for tests of checksums.
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
