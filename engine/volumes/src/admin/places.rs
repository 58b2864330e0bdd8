//! Free records of the volume table, and the limit on durable volumes.

use std::collections::HashSet;
use std::sync::Arc;

use crate::admin::engine::Engine;
use crate::device::volume::Volume;
use crate::error::{DURABLE_COUNT_MAX, VolumeError, VolumeErrorKind};
use crate::map::table::{self, FrozenPlace, Record};
use crate::map::volume_map::Place;
use crate::spec::Durability;

impl Engine {
    /// Finds up to `count` free records, and adds slabs to the table if necessary. The caller holds
    /// the administration lock.
    pub(super) fn free_records(
        &self,
        count: usize,
        name: &str,
    ) -> Result<Vec<Record>, VolumeError> {
        let store = &self.pool.store;
        let free = || table::all(store).filter(|record| record.is_free(store)).take(count);
        let found: Vec<_> = free().collect();
        if found.len() == count {
            return Ok(found);
        }
        let room = table::make_room(store, found.len(), count);
        room.map_err(|error| VolumeError::of_table(name, error))?;
        Ok(free().collect())
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
        let all = self.listed();
        if all.len() + more <= DURABLE_COUNT_MAX {
            return Ok(());
        }
        let is_durable =
            |one: &&Arc<Volume>| !one.is_snapshot() && one.durability() != Durability::Ram;
        let durable: HashSet<_> = all.iter().filter(is_durable).map(|one| one.id()).collect();
        let of_durable = |id| durable.contains(&id);
        let snapshots = all.iter().filter(|one| one.is_snapshot());
        let snapshots = snapshots.filter(|one| one.origin_id().is_some_and(of_durable)).count();
        match durable.len() + snapshots + more <= DURABLE_COUNT_MAX {
            true => Ok(()),
            false => Err(VolumeError::new(VolumeErrorKind::TooManyDurable, name)),
        }
    }
}
