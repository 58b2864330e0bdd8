//! The steps of a write by themselves, for measuring them one by one.
//!
//! Each does what `Lane::store_page` does at that point, and undoes it, so that it can be repeated.

use codec::Block;
use sync::Pinned;

use crate::error::NoSpace;
use crate::fingerprint::{Description, Fingerprint};
use crate::lane::Lane;
use crate::layout::Class;
use crate::purpose::Purpose;
use crate::store::PageStore;

impl PageStore {
    /// The fingerprint that dedup compares first.
    pub fn step_fingerprint(&self, contents: &Block) -> Fingerprint {
        self.core.fingerprinter.of(contents)
    }

    /// Looks a fingerprint up in the dedup index. Returns how many hints it gives.
    pub fn step_probe(&self, pinned: &Pinned<'_>, fingerprint: Fingerprint) -> usize {
        self.core.index.hints(&self.core.memory, pinned, fingerprint).count()
    }
}

impl Lane<'_> {
    /// Takes a slot for a page as it is, and puts it back.
    pub fn step_reserve(&mut self) -> Result<(), NoSpace> {
        let at = self.take_slot(Class::RAW, Purpose::NewData)?;
        self.put_slot_back(at);
        Ok(())
    }

    /// Stores contents in a slot, publishes it, and gives the reference back.
    pub fn step_store(&mut self, contents: &Block) -> Result<(), NoSpace> {
        let at = self.take_slot(Class::RAW, Purpose::NewData)?;
        self.core.memory.fill_slot(at, contents);
        self.publish(at, Description::NONE);
        self.core.release(at, self.index());
        Ok(())
    }
}
