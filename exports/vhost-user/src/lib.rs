//! Volumes as disks of virtual machines: vhost-user-blk in, block-device calls out.
//!
//! ```text
//! guest's driver ── rings in its memory ── worker ── Server ── BlockDevice
//!                                             │
//! QEMU ── socket ── Connection ── Front       └── Desk: flushes, data that are away
//!         vhost-user, one at a time   memory, rings, features
//! ```
//!
//! - [`Export`] is one disk on one socket. Its owner hands in the device.
//! - The rings are served by one thread each, up to the number of cores; a request costs no lock
//!   and, while traffic is recent, no system call.
//! - What is in flight is noted in memory that the front end keeps: after the death of this process
//!   the next one does again what was not answered, and the guest sees nothing of it.
//! - The guest's memory belongs to somebody else: it is copied before it is believed.
//!
//! Who may open the socket may read and write the volume. A front end can harm its own machine; it
//! holds up nobody else. Memory that it takes away where that cannot be sealed reads as zeros from
//! then on, and its disk is not served any more.
//!
//! Locks: a worker has its bench's rings whenever it runs; `Front` is the control thread's. Whoever
//! visits a bench takes its inbox afterwards, never the other way round. The desk's lock and the
//! line's are held for some instructions, and nothing else is taken meanwhile.
#![forbid(unsafe_code)]

mod bench;
mod chain;
mod channel;
mod connection;
mod desk;
mod disk;
mod error;
mod event;
mod export;
mod front;
mod inflight;
mod listener;
mod memory;
mod request;
mod ring;
mod server;
mod traffic;
mod worker;

pub use error::ExportError;
pub use export::{Admission, Config, Export, QUEUE_COUNT_MAX, ThreadBudget};
pub use peers::Peer;
pub use traffic::Traffic;
