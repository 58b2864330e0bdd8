//! Atomics, and the two protocols on which the engine's memory safety is based: reference counts
//! whose zero means free ([`counted`]), and grace periods ([`Grace`]).
//!
//! No other crate of `base/`, `pool/` and `engine/` uses `std::sync::atomic` directly. Under `--cfg
//! loom` this crate uses loom's atomics, and the tests explore every interleaving of both
//! protocols.
#![forbid(unsafe_code)]

pub mod atomic;
mod barrier;
pub mod counted;
mod grace;
mod latch;
mod padded;
mod striped;
mod tally;
mod thread_number;

pub use grace::{Epoch, Grace, Pinned};
pub use latch::{Latch, LatchGuard};
pub use padded::Padded;
pub use striped::Striped;
pub use tally::Tally;
pub use thread_number::thread_number;

/// Yields to other threads, for waits that another thread ends within microseconds.
pub fn atomic_yield() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}
