//! Index of the listed volumes and snapshots. The time of a change or lookup does not depend on the
//! number of volumes, apart from the depth of the trees.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::device::volume::Volume;
use crate::spec::{CapacityClass, Durability};
use crate::visits;

/// Volumes by id.
type ById = BTreeMap<u64, Arc<Volume>>;

/// All volumes and snapshots, and the indexes of those that operations ask for.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Names of snapshots contain an `@`.
    by_name: BTreeMap<String, Arc<Volume>>,
    /// Snapshots by the id of their volume. An id is larger than those of older snapshots.
    snapshots: BTreeMap<u64, ById>,
    /// Volumes, without snapshots, of class `image` or `journal`.
    durable: ById,
    guaranteed: ById,
    /// Number of snapshots and clones.
    copy_count: usize,
}

impl Listing {
    pub(crate) fn insert(&mut self, volume: Arc<Volume>) {
        self.copy_count += usize::from(volume.origin_id().is_some());
        if let Some(origin_id) = snapshot_origin(&volume) {
            self.snapshots.entry(origin_id).or_default().insert(volume.id(), Arc::clone(&volume));
        }
        self.note_classes(&volume);
        self.by_name.insert(volume.name(), volume);
    }

    pub(crate) fn remove(&mut self, volume: &Arc<Volume>) {
        let name = volume.name();
        if !self.by_name.get(&name).is_some_and(|listed| Arc::ptr_eq(listed, volume)) {
            // It was being filled, and was never listed.
            return;
        }
        self.by_name.remove(&name);
        self.copy_count -= usize::from(volume.origin_id().is_some());
        if let Some(origin_id) = snapshot_origin(volume)
            && let Some(of_volume) = self.snapshots.get_mut(&origin_id)
        {
            of_volume.remove(&volume.id());
            if of_volume.is_empty() {
                self.snapshots.remove(&origin_id);
            }
        }
        self.durable.remove(&volume.id());
        self.guaranteed.remove(&volume.id());
    }

    /// Lists a volume or snapshot under another name.
    pub(crate) fn rename(&mut self, volume: &Arc<Volume>, name: String) {
        self.by_name.remove(&volume.name());
        volume.map.set_name(name.clone());
        self.by_name.insert(name, Arc::clone(volume));
    }

    /// Updates the indexes after a change of the volume's classes.
    pub(crate) fn note_classes(&mut self, volume: &Arc<Volume>) {
        let is_durable = !volume.is_snapshot() && volume.durability() != Durability::Ram;
        set(&mut self.durable, volume, is_durable);
        let is_guaranteed = volume.capacity_class() == CapacityClass::Guaranteed;
        set(&mut self.guaranteed, volume, !volume.is_snapshot() && is_guaranteed);
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Volume>> {
        self.by_name.get(name)
    }

    /// Number of volumes and snapshots.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn copy_count(&self) -> usize {
        self.copy_count
    }

    /// All volumes and snapshots, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.by_name.values().inspect(|_| visits::note(1))
    }

    /// All snapshots, in no order.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.snapshots.values().flat_map(BTreeMap::values).inspect(|_| visits::note(1))
    }

    /// The snapshots of a volume, oldest first.
    pub(crate) fn snapshots_of(&self, volume_id: u64) -> impl Iterator<Item = &Arc<Volume>> {
        self.snapshots.get(&volume_id).into_iter().flat_map(BTreeMap::values)
    }

    /// Volumes, without snapshots, of class `image` or `journal`, by id.
    pub(crate) fn durable(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.durable.values().inspect(|_| visits::note(1))
    }

    /// Number of volumes of class `image` or `journal` and of their snapshots.
    pub(crate) fn durable_count_with_snapshots(&self) -> usize {
        let snapshots = self.durable.keys().filter_map(|id| self.snapshots.get(id));
        self.durable.len() + snapshots.map(BTreeMap::len).sum::<usize>()
    }

    /// Volumes, without snapshots, of class `guaranteed`.
    pub(crate) fn guaranteed(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.guaranteed.values().inspect(|_| visits::note(1))
    }
}

fn set(index: &mut ById, volume: &Arc<Volume>, is_member: bool) {
    match is_member {
        true => drop(index.insert(volume.id(), Arc::clone(volume))),
        false => drop(index.remove(&volume.id())),
    }
}

/// Id of the volume of a snapshot.
fn snapshot_origin(volume: &Volume) -> Option<u64> {
    volume.origin_id().filter(|_| volume.is_snapshot())
}
