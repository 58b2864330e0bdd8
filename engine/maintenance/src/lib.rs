//! The thread that does what nobody waits for: it keeps an engine's house.
//!
//! The engine reads no clock and starts no thread; whoever opens a pool starts an [`Upkeep`] beside
//! it, the daemon as well as a program that embeds a pool. Without one a pool works, but what
//! leaked is not collected, contents stay as large as they were written until memory runs short,
//! and writers wait for memory as it is taken.
#![forbid(unsafe_code)]

mod host;
mod pace;
mod private;
mod taker;
mod thread;

pub use private::private_bytes;
pub use thread::Upkeep;
