//! Server of block devices over shared-memory rings.
//!
//! ```text
//! Server ── one thread per client ── Taker ── entries ── Executor ── BlockDevice
//! listens, counts, stops             shared memory       checks, does, completes
//! ```
//!
//! - [`Server`] listens on a Unix socket. Its owner authorizes clients through [`Volumes`].
//! - Each client has one thread. The thread takes entries from all lanes of the client's memory,
//!   serves them in order and completes them in place. It polls while there is traffic, and
//!   otherwise sleeps on the client's socket. The connection ends when that socket closes.
//! - Requests that may block on a disk go to two more threads of the client, started on demand. One
//!   runs a flush for all requests that wait for one. The other executes requests whose data are
//!   not in memory.
//!
//! A client costs one to three threads and its ring's memory, both released as soon as its socket
//! is closed. Whatever a client writes into that memory, it can lose only its own connection:
//! entries are copied before they are checked, and data before the device sees them. Serving a
//! request takes no lock and writes no cache line that two clients share.
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
/// State of a server, with the clients of each volume id.
pub type Status = export_kit::Status<u64>;

pub use volumes::{OpenVolume, Refusal, Volumes};
