//! Parts that every export needs and no protocol defines.
//!
//! ```text
//! UnixSocket ── accept_until ──▶ Registry ── Registration ──▶ the export's own thread
//! takes a stale   Peer, Quota: who it is,     Counters ◀───── counts requests
//! socket's place  whether there is room       LateQueue ◀──── leaves it what may wait
//! ```
//!
//! - [`UnixSocket`] and [`accept_until`] listen and stop; [`Peer`] and [`Quota`] say who is at the
//!   other end and how many may be there.
//! - A [`Registry`] knows the open connections, ends those of one volume, or all, and sums up what
//!   they did.
//! - [`Counters`] and [`Traffic`] count requests in the same words everywhere.
//! - A [`LateQueue`] holds requests that may wait for a disk, for threads that may wait, too.
//! - [`StartError`] and [`AttachError`] say what went wrong; [`LogLimit`] bounds what peers can
//!   have logged.
//!
//! Nothing here decides who may use a volume: that is the owner's business. No lock is held while
//! a request is served.
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
