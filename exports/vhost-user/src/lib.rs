//! Volumes as disks of virtual machines: a vhost-user-blk back end on the trait `BlockDevice`.
//!
//! ```text
//! guest's driver ── rings in its memory ── worker ── Server ── BlockDevice
//!                                             │
//! QEMU ── socket ── Connection ── Front       └── LateWork: flushes, data not in memory
//!         vhost-user, one at a time   memory, rings, features
//! ```
//!
//! - [`Export`] is one disk on one socket. Its owner passes in the device.
//! - Each ring is served by one thread; there are at most as many threads as cores. A request takes
//!   no lock and, while there is traffic, no system call.
//! - Requests in flight are recorded in memory that the front end keeps. If this process dies, the
//!   next one repeats unanswered requests, and the guest sees no error.
//! - The guest's memory is not trusted: it is copied before it is checked.
//!
//! A process that can open the socket can read and write the volume. A front end can harm only its
//! own machine. A front end that does not claim the disk (`SET_OWNER`) is disconnected when another
//! one connects. If a front end truncates shared memory that cannot be sealed, the memory reads as
//! zeros from then on, and the disk is no longer served.
//!
//! Locks: a worker holds the lock of its rings while it runs. `Front` is used by the control thread
//! only. A visitor of a `RingSet` locks the rings before the inbox, never the other way round. The
//! locks of late work and of the sockets are held briefly, and no other lock is taken meanwhile.
#![forbid(unsafe_code)]

mod chain;
mod channel;
mod connection;
mod disk;
mod error;
mod event;
mod export;
mod front;
mod inflight;
mod late;
mod memory;
mod request;
mod ring;
mod ring_set;
mod server;
mod shared;
mod silence;
mod threads;
mod worker;

pub use disk::QUEUE_COUNT_MAX;
pub use error::ExportError;
pub use export::{Config, Export};
pub use export_kit::{Peer, StartError, Traffic};
pub use shared::Admission;
pub use threads::ThreadBudget;
