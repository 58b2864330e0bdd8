//! Volumes as disks of virtual machines: vhost-user-blk in, block-device calls out.
//!
//! ```text
//! guest's driver ── rings in its memory ── worker ── Server ── BlockDevice
//!                                             │
//! QEMU ── socket ── Connection ── Front       └── LateWork: flushes, data that are away
//!         vhost-user, one at a time   memory, rings, features
//! ```
//!
//! - [`Export`] is one disk on one socket. Its owner hands in the device.
//! - The rings are served by one thread each, up to the number of cores; a request costs no lock
//!   and, while traffic is recent, no system call.
//! - What is in flight is noted in memory that the front end keeps: after the death of this process
//!   the next one does again what was not answered, and the guest sees nothing of it.
//! - The guest's memory belongs to another party: it is copied before it is believed.
//!
//! A process that may open the socket may read and write the volume. A front end can harm its own
//! machine; it holds up no other. One that does not say that the disk is its own gives way to the
//! next. Memory that it takes away where that cannot be sealed reads as
//! zeros from then on, and its disk is not served any more.
//!
//! Locks: a worker has its rings whenever it runs; `Front` is the control thread's. A visitor of a
//! `RingSet` takes its inbox afterwards, never the other way round. The locks of late work and of
//! the sockets are held for some instructions, and nothing else is taken meanwhile.
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
