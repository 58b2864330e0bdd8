//! Background work of an engine: frees leaked pages, compresses pages, also idle ones, and takes
//! memory ahead of writers.
//!
//! The engine reads no clock and starts no thread, so a program that opens a pool runs
//! [`Maintenance`] beside it: the daemon, and a program that embeds a pool. Without it a pool
//! works, but leaked pages are not freed, contents stay uncompressed until memory runs short, and
//! writers wait while memory is taken from the host.
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
