//! The maps of a pool: those of listed volumes and snapshots, and those of frozen copies.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::map::volume_map::VolumeMap;
use crate::visits;

/// All maps, except those of volumes that are being created. No two have the same root word.
#[derive(Debug, Default)]
pub(crate) struct Maps(RwLock<BTreeMap<usize, Arc<VolumeMap>>>);

impl Maps {
    /// Returns all maps. Takes time proportional to their number.
    pub(crate) fn all(&self) -> Vec<Arc<VolumeMap>> {
        let maps = self.read();
        visits::note(maps.len());
        maps.values().cloned().collect()
    }

    /// Returns the map with this root word.
    pub(crate) fn get(&self, root_word: usize) -> Option<Arc<VolumeMap>> {
        self.read().get(&root_word).cloned()
    }

    pub(crate) fn add(&self, map: &Arc<VolumeMap>) {
        self.write().insert(map.tree.root_word, Arc::clone(map));
        if map.is_noted_untried() {
            // A thread that looked for the map before did not find it.
            map.pool.note_untried(map.tree.root_word);
        }
    }

    pub(crate) fn remove(&self, map: &Arc<VolumeMap>) {
        let mut maps = self.write();
        let root_word = map.tree.root_word;
        if maps.get(&root_word).is_some_and(|known| Arc::ptr_eq(known, map)) {
            maps.remove(&root_word);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<usize, Arc<VolumeMap>>> {
        self.0.read().expect("nothing panics with the maps locked")
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<usize, Arc<VolumeMap>>> {
        self.0.write().expect("nothing panics with the maps locked")
    }
}
