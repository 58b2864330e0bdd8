//! Crash points: end a run before a chosen store, as a kill would.
//!
//! After a kill the region contains all stores that were made, because caches stay coherent when a
//! process dies. Therefore a test that stops before each store in turn covers all states that one
//! thread can leave.

use std::sync::Arc;

use sync::atomic::{AtomicU64, Ordering};

/// Panic payload of an ended run.
#[derive(Debug)]
pub struct Crashed;

/// Counter of stores to a region that ends the run before one of them.
#[derive(Clone, Debug)]
pub struct CrashPoints {
    passed: Arc<AtomicU64>,
    last: u64,
}

impl CrashPoints {
    /// Allows `store_count` stores. The next store and all later ones panic with [`Crashed`].
    pub fn after(store_count: u64) -> Self {
        Self { passed: Arc::new(AtomicU64::new(0)), last: store_count }
    }

    /// Number of stores so far.
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
