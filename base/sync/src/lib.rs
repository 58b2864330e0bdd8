//! Atomics, and the two protocols that the engine's safety rests on: reference counts whose zero
//! means free ([`counted`]), and grace periods ([`Grace`]).
//!
//! No other crate of `base/`, `pool/` and `engine/` names `std::sync::atomic`: under `--cfg loom`
//! this one runs both protocols on loom's atomics and explores every interleaving of the tests.
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

/// Lets another thread run: for waits whose end another thread brings about within microseconds.
pub fn atomic_yield() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}
