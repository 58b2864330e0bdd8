//! Free records of the volume table, and the limit on durable volumes.

use std::collections::HashSet;

use crate::admin::engine::Engine;
use crate::error::{DURABLE_COUNT_MAX, VolumeError, VolumeErrorKind};
use crate::map::table::{self, FrozenPlace, Record};
use crate::map::volume_map::Place;

impl Engine {
    /// Finds `count` free records, and adds slabs to the table if necessary. The caller holds the
    /// administration lock.
    pub(super) fn free_records(
        &self,
        count: usize,
        name: &str,
    ) -> Result<Vec<Record>, VolumeError> {
        let found = self.first_free_records(count);
        if found.len() == count {
            return Ok(found);
        }
        let store = &self.pool.store;
        let slabs_before = table::slab_count(store);
        let room = table::make_room(store, found.len(), count);
        let added = table::records_from(store, slabs_before).map(Record::number);
        self.pool.lock_free_records().extend(added);
        room.map_err(|error| VolumeError::of_table(name, error))?;
        Ok(self.first_free_records(count))
    }

    /// Returns up to `count` free records, those with the lowest numbers.
    fn first_free_records(&self, count: usize) -> Vec<Record> {
        let is_free = |number| Record::of_number(number).is_free(&self.pool.store);
        let mut free = self.pool.lock_free_records();
        let mut found = Vec::new();
        let mut next = 0;
        while found.len() < count
            && let Some(&number) = free.range(next..).next()
        {
            next = number + 1;
            match is_free(number) {
                true => found.push(Record::of_number(number)),
                // It was taken after an earlier call.
                false => {
                    free.remove(&number);
                }
            }
        }
        found
    }

    /// Finds up to `count` free places for the roots of frozen copies.
    pub(super) fn free_frozen_places(&self, count: usize) -> Vec<Place> {
        // Copies are given up only with this lock held, until their places are free.
        let _kept = self.pool.frozen.keep();
        let taken: HashSet<_> = self.space.frozen().iter().map(|map| map.tree.root_word).collect();
        let is_free = |place: &FrozenPlace| !taken.contains(&place.root_word());
        let all = FrozenPlace::all(&self.pool.store);
        all.filter(is_free).map(Place::Frozen).take(count).collect()
    }

    /// Fails if `more` durable volumes and snapshots would exceed the number that a journal can
    /// name.
    pub(super) fn check_durable_count(&self, more: usize, name: &str) -> Result<(), VolumeError> {
        let listing = self.read_listing();
        if listing.len() + more <= DURABLE_COUNT_MAX {
            return Ok(());
        }
        let durable_count = listing.durable_count_with_snapshots();
        match durable_count + more <= DURABLE_COUNT_MAX {
            true => Ok(()),
            false => Err(VolumeError::new(VolumeErrorKind::TooManyDurable, name)),
        }
    }
}
