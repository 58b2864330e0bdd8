//! An engine's background work: giving leaked pages back, compressing, also what nobody reads a
//! second time, and taking memory ahead of writers.
//!
//! The engine reads no clock and starts no thread, so a program that opens a pool starts
//! [`Maintenance`] beside it: the daemon, and a program that embeds a pool. Without it a pool
//! works, but leaked pages stay lost, contents stay as large as they were written until memory runs
//! short, and writers wait while memory is taken from the host.
#![forbid(unsafe_code)]

mod host;
mod idle;
mod pace;
mod private;

mod taker;

mod thread;

pub use idle::IdleCompression;
pub use private::private_bytes;
pub use thread::Maintenance;
