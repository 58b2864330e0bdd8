//! Client library for volumes of a daemon on the same host, through shared memory.
//!
//! ```text
//! Client ── where the daemon is ── open ──▶ Device ── any number of threads ── read, write, …
//!                                             └─ Lane ── one thread, many requests in flight
//! ```
//!
//! - A [`Device`] can be cloned and used by any number of threads. A thread uses one of the
//!   device's lanes for the duration of a request.
//! - When the daemon exits, calls wait for its restart for a bounded time, reconnect and repeat
//!   unanswered requests. Concurrent requests have no order, with or without a restart.
//! - A child process connects at its first request, whichever way it was created. It shares no
//!   connection with its parent, unless it shares the parent's memory. Requests in flight on a lane
//!   belong to the parent.
//! - Errors have an error number as of a system call, see [`ClientError::errno`].
//!
//! The crate `memlane` provides the same API for C. The library does not change signal handling and
//! starts no threads.

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
