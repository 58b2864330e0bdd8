//! Ends a run before a chosen store, as a kill would.
//!
//! The state after a kill is all stores that were made: caches stay coherent when a process dies.
//! So a test that stops before each store in turn sees every state that one thread can leave.

use std::sync::Arc;

use sync::atomic::{AtomicU64, Ordering};

/// Payload of the run's panic.
#[derive(Debug)]
pub struct Crashed;

/// Counts the stores to a region and ends the run before one of them.
#[derive(Clone, Debug)]
pub struct CrashPoints {
    passed: Arc<AtomicU64>,
    last: u64,
}

impl CrashPoints {
    /// Lets `store_count` stores happen; the next one panics with [`Crashed`], as do all later.
    pub fn after(store_count: u64) -> Self {
        Self { passed: Arc::new(AtomicU64::new(0)), last: store_count }
    }

    /// Stores so far.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    pub(crate) fn pass(&self) {
        let passed = self.passed.fetch_add(1, Ordering::Relaxed);
        if passed >= self.last {
            std::panic::panic_any(Crashed);
        }
    }
}
