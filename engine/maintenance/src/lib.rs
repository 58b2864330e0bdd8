//! An engine's background work: collecting leaks, compressing, and taking memory ahead of writers.
//!
//! The engine reads no clock and starts no thread; a program that opens a pool starts
//! [`Maintenance`] beside it, the daemon as well as one that embeds a pool. Without it a pool
//! works, but what leaked is not collected, contents stay as large as they were written until
//! memory runs short, and writers wait for memory as it is taken.
#![forbid(unsafe_code)]

mod host;
mod pace;
mod private;

mod taker;

mod thread;

pub use private::private_bytes;
pub use thread::Maintenance;
