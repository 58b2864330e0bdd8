//! List of the table slabs of a pool.

use std::sync::{Mutex, MutexGuard};

/// The table slabs of a pool.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    slabs: Mutex<Vec<u32>>,
}

impl Tables {
    /// Tells of a slab that was found to be one.
    pub(crate) fn admit(&self, slab: u32) {
        let mut slabs = self.lock();
        slabs.push(slab);
        slabs.sort_unstable();
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.lock().len()).expect("slab counts fit 24 bits")
    }

    /// Number after that of the last one.
    pub(crate) fn end(&self) -> Option<u32> {
        self.lock().iter().max().map(|&slab| slab + 1)
    }

    /// Their numbers, rising.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.slabs.lock().expect("no thread panics with the table slabs locked")
    }
}
