//! A server of block devices over rings in shared memory.
//!
//! ```text
//! Server ── one thread per client ── Taker ── entries ── Executor ── BlockDevice
//! listens, counts, stops             shared memory       checks, does, completes
//! ```
//!
//! - [`Server`] listens on a Unix socket. Its owner decides what a client may open: [`Volumes`].
//! - A client is one thread that takes entries from all lanes of the client's memory, serves them
//!   one after the other and completes them in place. It spins while traffic is recent, and sleeps
//!   on the client's socket, whose end is the client's end.
//! - What may wait for a disk is left to two more threads of the client, which come into being with
//!   the first of it: one flushes, for all that have come at once; one moves data that are away.
//!
//! A client costs one thread, or three, and its memory; it goes as soon as its socket is closed.
//! Whatever it writes into that memory, it can at worst lose its own connection: entries are
//! checked copies, data are copied out before the device sees them. No lock is held, and no line
//! that two clients share is written, while a request is served.
#![forbid(unsafe_code)]

mod client;
mod executor;
mod late;
mod server;
mod status;
mod volumes;

pub use export_kit::{Peer, Quota, StartError, Traffic};
pub use server::{Config, Server};
pub use shared_ring::{Access, Target};
/// State of a server, with clients by the id of their volume.
pub type Status = export_kit::Status<u64>;

pub use volumes::{OpenVolume, Refusal, Volumes};
