//! List of the table slabs of a pool.

use std::sync::{Mutex, MutexGuard};

/// The table slabs of a pool.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    slabs: Mutex<Vec<u32>>,
}

impl Tables {
    /// Adds a slab that was found to be a table slab.
    pub(crate) fn admit(&self, slab: u32) {
        let mut slabs = self.lock();
        slabs.push(slab);
        slabs.sort_unstable();
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.lock().len()).expect("slab counts fit 24 bits")
    }

    /// Exclusive upper bound of the table slabs' numbers.
    pub(crate) fn end(&self) -> Option<u32> {
        self.lock().iter().max().map(|&slab| slab + 1)
    }

    /// Locks the list of their numbers, in ascending order.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.slabs.lock().expect("no thread panics with the table slabs locked")
    }
}
