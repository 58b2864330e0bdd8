//! Finding the volumes of a pool that is opened, and ending what a kill interrupted.

use std::collections::BTreeMap;
use std::sync::Arc;

use block_device::BLOCK_BYTES;

use crate::copies::snapshot_name;
use crate::engine::{Volumes, behind};
use crate::shared::Shared;
use crate::spec::Durability;
use crate::table::{self, Kind, Record, Stored};
use crate::volume::Volume;

/// How the last run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Clean,
    Unclean,
}

impl End {
    pub(crate) fn of(was_clean: bool) -> Self {
        if was_clean { Self::Clean } else { Self::Unclean }
    }
}

/// Finds volumes and snapshots. A record that cannot be read stays as it is, and so does all memory
/// that it may name.
pub(crate) fn load_volumes(shared: &Arc<Shared>, end: End) -> Volumes {
    table::all().for_each(|record| end_interrupted(shared, record, end));
    let mut found = Vec::new();
    for record in table::all() {
        match record.load(&shared.store) {
            Some(stored) => found.push((record, stored)),
            None => shared.leak_check.note_damage(u64::from(record.is_live(&shared.store))),
        }
    }
    // Only copies share nodes, and what they are made of.
    let is_sharing = found.iter().any(|(_, stored)| stored.origin.is_some());
    let mut volumes = Volumes::new();
    let mut by_id = BTreeMap::new();
    // Volumes first: their snapshots have names that begin with theirs.
    found.sort_by_key(|(_, stored)| (stored.shape.kind == Kind::Snapshot, stored.id));
    for (record, stored) in &found {
        let volume = load_volume(shared, *record, stored, end);
        if is_sharing {
            volume.sharing.begin();
        }
        if volume.is_snapshot() {
            let origin_id = volume.origin_id().unwrap_or(0);
            let origin: Option<&Arc<Volume>> = by_id.get(&origin_id);
            origin.into_iter().for_each(|origin| origin.add_snapshot(&volume));
            // Damage may have taken the volume.
            let origin = origin.map_or_else(|| format!("lost-{origin_id}"), |one| one.name());
            volume.set_name(snapshot_name(&origin, stored.name.as_str()));
        } else {
            by_id.insert(volume.id(), Arc::clone(&volume));
        }
        shared.compression.watch(&volume);
        volumes.insert(volume.name(), volume);
    }
    for volume in volumes.values() {
        end_trimming(shared, volume);
        volume.claim_again();
    }
    volumes
}

/// Ends what was under way when the pool was left.
fn end_interrupted(shared: &Shared, record: Record, end: End) {
    let store = &shared.store;
    record.end_reverting(store);
    let is_unfinished =
        record.is_being_deleted(store) || record.is_filling(store) || record.is_uncommitted(store);
    if is_unfinished {
        // What is left of the map counts as leaked.
        record.end_deleting(store);
    }
    if record.is_frozen(store) {
        let root = record.root(store);
        record.end_deleting(store);
        // After a kill the map counts as leaked.
        if let Some(root) = root.filter(|_| end == End::Clean) {
            store.retire_tree(root);
        }
    }
}

fn load_volume(shared: &Arc<Shared>, record: Record, stored: &Stored, end: End) -> Arc<Volume> {
    shared.leak_check.admit(&shared.store, &shared.store.pin(), record.root_word());
    let volume = Volume::new(Arc::clone(shared), record, stored);
    if end == End::Clean || volume.is_snapshot() {
        // Counts that no volume of this size can have are damaged.
        let blocks_max = stored.size_bytes / BLOCK_BYTES as u64;
        let signed = |count: u64| i64::try_from(count.min(blocks_max)).unwrap_or(0);
        volume.counts.written.add(0, signed(stored.written_blocks));
        volume.counts.filled.add(0, signed(stored.fill_blocks));
        volume.counts.untried.add(0, signed(stored.untried_blocks));
    } else {
        shared.leak_check.begin_counting(stored.id);
    }
    if end == End::Unclean || stored.untried_blocks > 0 {
        volume.untried_leaves.mark_first(volume.leaf_count());
    }
    if stored.shape.durability == Durability::Journal && !volume.is_snapshot() {
        volume.unjournaled_leaves.mark_first(volume.leaf_count());
    }
    volume
}

/// Drops what an interrupted resize left behind a volume's end. Without memory for copies of what
/// other maps share, the next resize goes on.
fn end_trimming(shared: &Shared, volume: &Volume) {
    // A snapshot never grows; what is made of it knows.
    if !volume.is_snapshot()
        && volume.record.is_trimming(&shared.store)
        && volume.discard_whole_blocks(behind(volume.size_bytes())).is_ok()
    {
        volume.record.end_trimming(&shared.store);
    }
}
