//! Loading of the volumes of a pool, and completion of operations that a kill interrupted.

use std::collections::BTreeMap;
use std::sync::Arc;

use block_device::BLOCK_BYTES;

use crate::admin::listing::Listing;
use crate::admin::volumes::{past_end, snapshot_name};
use crate::device::discard::trim;
use crate::device::hooks::Hooks;
use crate::device::volume::{SnapshotList, Volume};
use crate::map::table::{self, Kind, Record, Stored};
use crate::map::volume_map::{Place, VolumeMap};
use crate::pool::shared::Pool;
use crate::space::find::Space;
use crate::spec::Durability;

/// Kind of the last run's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Clean,
    Unclean,
}

/// Loads volumes and snapshots. An unreadable record is kept, and so is all memory that it may
/// refer to.
pub(super) fn load_volumes(space: &Arc<Space>, hooks: &Arc<Hooks>, end: End) -> Listing {
    let pool = &space.pool;
    table::forget_frozen(&pool.store);
    // Memory that the missing tables refer to must not be freed.
    pool.leaks.note_damage(u64::from(pool.store.missing_tables()));
    table::all(&pool.store).for_each(|record| end_interrupted(pool, record, end));
    let mut found = Vec::new();
    for record in table::all(&pool.store) {
        match record.load(&pool.store) {
            Some(stored) => {
                table::pass_id(&pool.store, stored.id);
                found.push((record, stored));
            }
            None => pool.leaks.note_damage(u64::from(record.is_live(&pool.store))),
        }
    }
    // Nodes are shared only by copies and their sources.
    let may_share = found.iter().any(|(_, stored)| stored.origin.is_some());
    let mut listing = Listing::default();
    let mut by_id: BTreeMap<u64, Arc<Volume>> = BTreeMap::new();
    // Volumes first, because the names of snapshots begin with theirs.
    found.sort_by_key(|(_, stored)| (stored.shape.kind == Kind::Snapshot, stored.id));
    for (record, stored) in &found {
        let map = load_map(pool, *record, stored, end);
        map.set_may_share(may_share);
        let mut snapshots = Arc::<SnapshotList>::default();
        if map.kind == Kind::Snapshot {
            let origin_id = stored.origin.map_or(0, |origin| origin.volume_id);
            let origin = by_id.get(&origin_id);
            if let Some(origin) = origin {
                snapshots = Arc::clone(&origin.snapshots);
                snapshots.add(&map);
            }
            // The record of the volume may be damaged.
            let origin = origin.map_or_else(|| format!("lost-{origin_id}"), |one| one.name());
            map.set_name(snapshot_name(&origin, stored.name.as_str()));
        }
        let volume = Volume::new(map, space, hooks, snapshots);
        if !volume.is_snapshot() {
            by_id.insert(volume.id(), Arc::clone(&volume));
        }
        listing.insert(volume);
    }
    for volume in listing.all() {
        end_trimming(space, &volume.map);
        volume.map.claim_again();
    }
    listing
}

/// Completes or reverts the operation that was in progress at the end of the last run.
fn end_interrupted(pool: &Pool, record: Record, end: End) {
    let store = &pool.store;
    record.end_reverting(store);
    let is_unfinished =
        record.is_being_deleted(store) || record.is_filling(store) || record.is_uncommitted(store);
    if is_unfinished {
        // The rest of the map counts as leaked.
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

fn load_map(pool: &Arc<Pool>, record: Record, stored: &Stored, end: End) -> Arc<VolumeMap> {
    pool.leaks.admit(&pool.store, &pool.store.pin(), record.root_word());
    let map = VolumeMap::new(Arc::clone(pool), Place::Listed(record), stored);
    let is_snapshot = map.kind == Kind::Snapshot;
    if end == End::Clean || is_snapshot {
        // Counts too large for a volume of this size are damaged.
        let blocks_max = stored.size_bytes / BLOCK_BYTES as u64;
        map.counts.set_loaded(
            stored.written_blocks.min(blocks_max),
            stored.fill_blocks.min(blocks_max),
            stored.untried_blocks.min(blocks_max),
        );
    } else {
        pool.leaks.begin_counting(stored.id);
    }
    if end == End::Unclean || stored.untried_blocks > 0 {
        map.note_untried_first(map.leaf_count());
    }
    if stored.shape.durability == Durability::Journal && !is_snapshot {
        map.dirty_leaves.set_first(map.leaf_count());
    }
    map
}

/// Discards what an interrupted resize left past a volume's end. If there is no memory for copies
/// of shared nodes, the next resize continues.
fn end_trimming(space: &Space, map: &VolumeMap) {
    let store = &map.pool.store;
    // A snapshot never grows. Copies of it inherit the state.
    if map.kind != Kind::Snapshot
        && map.record().is_trimming(store)
        && trim(space, map, past_end(map.size_bytes())).is_ok()
    {
        map.record().end_trimming(store);
    }
}
