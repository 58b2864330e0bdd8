//! Individual steps of a write, for measurements.
//!
//! Each does the same as `Lane::store_page` at that point, and reverts it, so that it can be
//! repeated.

use codec::Block;
use sync::Pinned;

use crate::error::NoSpace;
use crate::fingerprint::{Description, Fingerprint};
use crate::lane::Lane;
use crate::layout::Class;
use crate::purpose::Purpose;
use crate::store::PageStore;

impl PageStore {
    /// Computes the fingerprint that dedup compares first.
    pub fn step_fingerprint(&self, contents: &Block) -> Fingerprint {
        self.core.fingerprinter.of(contents)
    }

    /// Looks up a fingerprint in the dedup index. Returns the number of hints.
    pub fn step_probe(&self, pinned: &Pinned<'_>, fingerprint: Fingerprint) -> usize {
        self.core.index.hints(&self.core.memory, pinned, fingerprint).count()
    }
}

impl Lane<'_> {
    /// Takes a slot for an uncompressed page, and returns it.
    pub fn step_reserve(&mut self) -> Result<(), NoSpace> {
        let at = self.take_slot(Class::RAW, Purpose::NewData)?;
        self.put_slot_back(at);
        Ok(())
    }

    /// Stores contents in a slot, publishes it, and releases the reference.
    pub fn step_store(&mut self, contents: &Block) -> Result<(), NoSpace> {
        let at = self.take_slot(Class::RAW, Purpose::NewData)?;
        self.core.memory.fill_slot(at, contents);
        self.publish(at, Description::NONE);
        self.core.release(at, self.index());
        Ok(())
    }
}
