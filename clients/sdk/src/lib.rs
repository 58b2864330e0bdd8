//! Volumes for programs: read and write a volume of the daemon on this machine, in memory shared
//! with it.
//!
//! ```text
//! Client ── where the daemon is ── open ──▶ Device ── any number of threads ── read, write, …
//!                                             └─ Lane ── one thread, many requests in flight
//! ```
//!
//! - A [`Device`] can be cloned and used by any number of threads. Each of them uses one of the
//!   device's lanes while a request lasts.
//! - When the daemon goes, calls wait for it to come back, for a bounded time, connect again and
//!   repeat what was not answered. Requests in flight together have no order, before as after.
//! - A child connects for itself with its first request, however it was made; it shares nothing
//!   with its parent, unless it shares all memory with it. Requests of a lane stay the parent's.
//! - Errors carry an error number as a system call would have, see [`ClientError::errno`].
//!
//! The crate `memlane` has the same API for C. The library never touches signals, and starts no
//! thread.

mod buffers;
mod error;
mod fork;
mod lane;
mod link;
mod origin;
mod patience;
mod pieces;
mod process;
mod request;
mod transfer;
mod watch;

mod device;

pub use block_device::{BLOCK_BYTES, ByteRange, Geometry, SectorSize, Zeroes};
pub use device::{Client, Device};
pub use error::ClientError;
pub use fork::{is_guest, is_untold_child, tell_children_apart};
pub use lane::{Completion, Lane, REQUESTS_MAX, RawKind, RawRequest, Submission, Token};

pub use origin::ClientOptions;
pub use shared_ring::Target;
pub use watch::Watch;
