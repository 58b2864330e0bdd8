//! Common parts of all exports, independent of their protocols.
//!
//! ```text
//! UnixSocket ── accept_until ──▶ Registry ── Registration ──▶ the export's own thread
//! replaces stale  Peer, Quota: identity,      Counters ◀───── counts requests
//! sockets         limits                      LateQueue ◀──── passes it blocking requests
//! ```
//!
//! - [`UnixSocket`] and [`accept_until`] listen for clients and stop. [`Peer`] identifies a client,
//!   and [`Quota`] limits the number of clients.
//! - A [`Registry`] tracks open connections, closes those of one volume or all, and sums up their
//!   traffic.
//! - [`Counters`] and [`Traffic`] count requests in the same categories for all exports.
//! - A [`LateQueue`] passes requests that may block on a disk to threads that may block.
//! - [`StartError`] and [`AttachError`] describe failures. [`LogLimit`] limits log messages that
//!   peers cause.
//!
//! Access to volumes is decided by the owner of the export, not here. No lock is held while a
//! request is served.
#![forbid(unsafe_code)]

mod accept;
mod attach_error;
mod late_queue;
mod log_limit;
mod peer;
mod quota;
mod registry;
mod start_error;
mod traffic;
mod unix_socket;

pub use accept::{StopSignal, accept_until};
pub use attach_error::{AttachError, AttachErrorKind};
pub use late_queue::{LateQueue, QueueEnd};
pub use log_limit::{LINES_PER_WINDOW_MAX, LogLimit, WINDOW};
pub use peer::Peer;
pub use quota::Quota;
pub use registry::{Inside, Registration, Registry, Status};
pub use start_error::StartError;
pub use traffic::{Counters, Traffic};
pub use unix_socket::{SocketPlan, UnixSocket, end_socket};
