//! Copies of whole maps: snapshots, clones, and what frozen copies begin as.
//!
//! A copy begins as a second name of the same root: it takes no memory but its place in the table,
//! and no longer for a large volume than for a small one. It is made with every block of the pool
//! held, so that it has each write that was acknowledged before, of all volumes that are copied
//! together, and no write without those that came before it.
//!
//! ```text
//!  records of a new group ─▶ every block held: roots raised, root words stored ─▶ group committed
//!  ── a kill leaves no copy ─────────────────────────────────────────────────────┤── all of them ─
//! ```

use std::sync::Arc;

use page_store::{NoSpace, NodeRef, PageStore};
use sync::Pinned;

use crate::capacity::no_space;
use crate::engine::Engine;
use crate::error::{SnapshotsLeft, VolumeError, VolumeErrorKind};
use crate::spec::{CapacityClass, VolumeName};
use crate::table::{self, Commit, Kind, Origin, Record, Stored};
use crate::volume::Volume;

/// Trees that wait to be taken apart before who deletes one helps with it.
const DEFERRED_MAX: usize = 4096;

/// Nodes that such a caller takes apart at a time.
const NODES_A_TURN: usize = 256;

/// What copies are to be.
pub(crate) struct Plan {
    /// Their own name; that of each source if there is none.
    name: Option<VolumeName>,
    kind: Kind,
    created_unix_seconds: u64,
    /// The id of the one copy, if it is to have one that it had before.
    id: Option<u64>,
}

impl Plan {
    pub(crate) fn frozen() -> Self {
        Self { name: None, kind: Kind::Frozen, created_unix_seconds: 0, id: None }
    }
}

impl Engine {
    /// Makes a snapshot of each volume, all of them of one instant, under one name: `VOLUME@NAME`.
    /// All are made, also if the process is killed meanwhile, or none. They take memory only as the
    /// volumes change.
    pub fn create_snapshots(
        &self,
        volumes: &[&str],
        snapshot: &VolumeName,
        created_unix_seconds: u64,
    ) -> Result<Vec<Arc<Volume>>, VolumeError> {
        let (name, kind) = (Some(snapshot.clone()), Kind::Snapshot);
        let plan = Plan { name, kind, created_unix_seconds, id: None };
        self.make_snapshots(volumes, snapshot, &plan)
    }

    /// Makes a snapshot that there was before the pool was lost: with the id that it had.
    pub fn create_snapshot_again(
        &self,
        volume: &str,
        snapshot: &VolumeName,
        created_unix_seconds: u64,
        id: u64,
    ) -> Result<(), VolumeError> {
        let (name, kind) = (Some(snapshot.clone()), Kind::Snapshot);
        let plan = Plan { name, kind, created_unix_seconds, id: Some(id) };
        self.make_snapshots(&[volume], snapshot, &plan).map(drop)
    }

    fn make_snapshots(
        &self,
        volumes: &[&str],
        snapshot: &VolumeName,
        plan: &Plan,
    ) -> Result<Vec<Arc<Volume>>, VolumeError> {
        let _administration = self.administrate();
        let mut sources = Vec::new();
        for (index, &name) in volumes.iter().enumerate() {
            sources.push(self.changeable(name)?);
            let full_name = snapshot_name(name, snapshot.as_str());
            if volumes[..index].contains(&name) {
                return Err(VolumeError::new(VolumeErrorKind::AlreadyExists, full_name));
            }
            self.check_free(&full_name)?;
        }
        let copies = self.copy_maps(&sources, plan)?;
        for (source, copy) in sources.iter().zip(&copies) {
            copy.set_name(snapshot_name(&source.name(), snapshot.as_str()));
            source.add_snapshot(copy);
            self.list_volume(&copy.name(), copy);
        }
        Ok(copies)
    }

    /// All snapshots, by name.
    pub fn snapshots(&self) -> Vec<Arc<Volume>> {
        let mut all = self.listed();
        all.retain(|volume| volume.is_snapshot());
        all
    }

    pub fn snapshot(&self, volume: &str, snapshot: &str) -> Result<Arc<Volume>, VolumeError> {
        self.volume(&snapshot_name(volume, snapshot))
    }

    /// Deletes a snapshot, in any order with others, and gives back the memory that only it had:
    /// bit by bit in [`Engine::maintain`].
    pub fn delete_snapshot(&self, volume: &str, snapshot: &str) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let snapshot = self.snapshot(volume, snapshot)?;
        self.unlist_and_retire(&snapshot);
        Ok(())
    }

    pub fn rename_snapshot(
        &self,
        volume: &str,
        snapshot: &str,
        new_name: &VolumeName,
    ) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let (name, new) =
            (snapshot_name(volume, snapshot), snapshot_name(volume, new_name.as_str()));
        let snapshot = self.volume(&name)?;
        if name != new {
            self.check_free(&new)?;
            snapshot.record.rename(&self.shared.store, new_name);
            self.list_under(&snapshot, new);
        }
        Ok(())
    }

    /// Makes a volume that begins as a copy of another one or of a snapshot (`VOLUME@SNAPSHOT`). It
    /// depends on neither from then on, and takes memory only as either changes.
    pub fn clone_volume(
        &self,
        source: &str,
        new_name: VolumeName,
    ) -> Result<Arc<Volume>, VolumeError> {
        let _administration = self.administrate();
        let source = self.volume(source)?;
        self.check_free(new_name.as_str())?;
        let (name, kind) = (Some(new_name.clone()), Kind::Volume);
        let plan = Plan { name, kind, created_unix_seconds: 0, id: None };
        let copies = self.copy_maps(&[source], &plan)?;
        let [clone] = <[_; 1]>::try_from(copies).expect("one copy was made");
        clone.unjournaled_leaves.mark_first(clone.leaf_count());
        self.list_volume(new_name.as_str(), &clone);
        Ok(clone)
    }

    /// Makes a volume what it was when one of its snapshots was made, its size included. What it
    /// held is lost; the snapshot stays. Requests meanwhile see each block as it was or as it is.
    pub fn restore_snapshot(&self, volume: &str, snapshot: &str) -> Result<(), VolumeError> {
        let _administration = self.administrate();
        let target = self.changeable(volume)?;
        let snapshot = self.snapshot(volume, snapshot)?;
        self.end_trimming(&target)?;
        self.end_leak_check();
        let store = &self.shared.store;
        let (old_bytes, new_bytes) = (target.size_bytes(), snapshot.size_bytes());
        if new_bytes < old_bytes {
            // From here on no request reaches behind the new end.
            target.set_size_bytes(new_bytes);
            store.wait_for_readers();
        }
        let claimed = target.claim_blocks(new_bytes.saturating_sub(old_bytes));
        let exchanged = claimed.and_then(|()| {
            let exchanged = self.exchange_map(&target, &snapshot);
            let unused_bytes = match exchanged {
                Ok(()) => old_bytes.saturating_sub(new_bytes),
                Err(_) => new_bytes.saturating_sub(old_bytes),
            };
            target.release_blocks(unused_bytes);
            exchanged
        });
        if let Err(error) = exchanged {
            target.set_size_bytes(old_bytes);
            return Err(error);
        }
        target.set_size_bytes(new_bytes);
        self.note_table_change();
        Ok(())
    }

    /// Refuses to delete a volume that has snapshots.
    pub(crate) fn check_has_no_snapshots(&self, volume: &Volume) -> Result<(), VolumeError> {
        let names: Vec<_> = volume.snapshot_list().iter().map(|one| one.name()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let source = Some(SnapshotsLeft { names }.into());
        Err(VolumeError {
            source,
            ..VolumeError::new(VolumeErrorKind::HasSnapshots, volume.name())
        })
    }

    /// Gives the map of a volume that is in no list any more back. Nobody uses the volume.
    pub(crate) fn retire_map(&self, volume: &Volume) {
        retire_map(volume);
        let store = &self.shared.store;
        while store.deferred_count() > DEFERRED_MAX {
            store.reclaim_deferred(NODES_A_TURN);
        }
    }

    /// Lets maps be changed as if none had ever been copied, once no copy is left. Waits for
    /// nobody: another time will do.
    pub(crate) fn end_sharing(&self) {
        let listed = self.listed();
        if !listed.iter().any(|volume| volume.sharing.is_possible()) {
            return;
        }
        let Ok(_administration) = self.administration.try_lock() else { return };
        let listed = self.listed();
        let has_copies = listed.iter().any(|volume| volume.origin_id().is_some())
            || !self.shared.frozen.is_empty()
            || self.shared.store.deferred_count() > 0;
        if !has_copies {
            let _all_held = self.shared.locks.lock_all();
            for volume in listed {
                volume.sharing.end();
                volume.unshare_pages();
            }
        }
    }

    /// Makes copies that are in no list yet.
    pub(crate) fn copy_maps(
        &self,
        sources: &[Arc<Volume>],
        plan: &Plan,
    ) -> Result<Vec<Arc<Volume>>, VolumeError> {
        let copies = self.try_to_copy_maps(sources, plan);
        match &copies {
            // What is to last comes before what is frozen for somebody who can try again.
            Err(error) if error.kind == VolumeErrorKind::NoSpace && plan.kind != Kind::Frozen => {
                match self.shared.take_back_frozen() {
                    true => self.try_to_copy_maps(sources, plan),
                    false => copies,
                }
            }
            _ => copies,
        }
    }

    fn try_to_copy_maps(
        &self,
        sources: &[Arc<Volume>],
        plan: &Plan,
    ) -> Result<Vec<Arc<Volume>>, VolumeError> {
        // What a volume holds is counted when all leaks are known.
        self.end_leak_check();
        let store = &self.shared.store;
        let free = table::all().filter(|record| record.is_free(store));
        let records: Vec<Record> = free.take(sources.len()).collect();
        if records.len() < sources.len() {
            let name = sources[records.len()].name();
            return Err(VolumeError::new(VolumeErrorKind::TooManyVolumes, name));
        }
        let group = table::next_group(store);
        let copies: Vec<_> = sources
            .iter()
            .zip(records)
            .map(|(source, record)| self.begin_copy(source, record, plan, group))
            .collect();
        self.share_maps(sources, &copies, group)
            .inspect_err(|_| copies.iter().for_each(|copy| retire_map(copy)))?;
        Ok(copies)
    }

    /// An empty copy that does not count yet.
    fn begin_copy(&self, source: &Volume, record: Record, plan: &Plan, group: u64) -> Arc<Volume> {
        let store = &self.shared.store;
        let mut shape = source.shape();
        shape.kind = plan.kind;
        shape.capacity = CapacityClass::Thin;
        let own_name = || source.record.name(store).expect("the volume was made with a name");
        let stored = Stored {
            name: plan.name.clone().unwrap_or_else(own_name),
            id: table::take_id(store, plan.id),
            size_bytes: source.size_bytes(),
            shape,
            written_blocks: 0,
            fill_blocks: 0,
            untried_blocks: 0,
            base: None,
            is_anchored: false,
            origin: Some(Origin {
                volume_id: source.id(),
                created_unix_seconds: plan.created_unix_seconds,
            }),
        };
        record.create(store, &stored, Commit::WithGroup(group));
        Volume::new(Arc::clone(&self.shared), record, &stored)
    }

    /// The instant. A root with as many references as can be counted cannot be shared, nor pages
    /// whose copies a volume of class `guaranteed` could not make.
    fn share_maps(
        &self,
        sources: &[Arc<Volume>],
        copies: &[Arc<Volume>],
        group: u64,
    ) -> Result<(), VolumeError> {
        let store = &self.shared.store;
        let _all_held = self.shared.locks.lock_all();
        let pinned = store.pin();
        for (source, copy) in sources.iter().zip(copies) {
            if copy.kind != Kind::Frozen {
                source.share_pages().map_err(|refused| no_space(&source.name(), refused))?;
            }
            let root = source.map.root(store, &pinned);
            if let Some(root) = root {
                share(store, &pinned, root, source)?;
            }
            store.set_root(copy.map.root_word, root);
            source.sharing.begin();
            source.leaves.share_all();
            copy.take_over(source);
            copy.set_lineage_of(source);
            // At this instant, like the map: an image that is being noted as the base takes marks
            // away only afterwards.
            copy.record.set_base(store, source.record.base(store));
            copy.inherit_trimming(source);
            copy.record.set_counts(store, &copy.counts);
        }
        table::commit_group(store, group);
        Ok(())
    }

    /// Gives a volume the map of a snapshot.
    fn exchange_map(&self, target: &Volume, snapshot: &Volume) -> Result<(), VolumeError> {
        let store = &self.shared.store;
        let _all_held = self.shared.locks.lock_all();
        let pinned = store.pin();
        target.share_pages().map_err(|refused| no_space(&target.name(), refused))?;
        if let Some(root) = snapshot.map.root(store, &pinned) {
            share(store, &pinned, root, target)?;
        }
        let old = target.map.root(store, &pinned);
        target.inherit_trimming(snapshot);
        target.record.begin_reverting(store, snapshot.record);
        target.record.end_reverting(store);
        target.leaves.forget_all();
        target.take_over(snapshot);
        target.begin_lineage();
        target.note_all_shared();
        target.set_anchored(false);
        target.unjournaled_leaves.mark_first(snapshot.leaf_count());
        if let Some(old) = old {
            store.retire_tree(old);
        }
        Ok(())
    }
}

impl Volume {
    /// What a resize of the other volume had to leave behind its end is in this one's map too, and
    /// goes before it grows.
    fn inherit_trimming(&self, source: &Self) {
        let store = &self.shared.store;
        if source.record.is_trimming(store) {
            self.record.begin_trimming(store);
        }
    }

    /// Has the map of another volume from now on. The caller holds every block.
    fn take_over(&self, source: &Self) {
        self.sharing.begin();
        source.sharing.begin();
        self.counts.become_equal_to(&source.counts);
        if self.counts.untried.sum() > 0 {
            self.untried_leaves.mark_first(source.leaf_count());
        }
    }
}

/// Adds a reference to the root of a map.
fn share(
    store: &PageStore,
    pinned: &Pinned<'_>,
    root: NodeRef,
    volume: &Volume,
) -> Result<(), VolumeError> {
    let full = |NoSpace| VolumeError::new(VolumeErrorKind::NoSpace, volume.name());
    store.share_node(pinned, root).map_err(full)
}

/// Frees the record of a volume that nobody uses, and gives its map back.
pub(crate) fn retire_map(volume: &Volume) {
    let store = &volume.shared.store;
    let root = volume.map.root(store, &store.pin());
    volume.record.end_deleting(store);
    if let Some(root) = root {
        store.retire_tree(root);
    }
}

/// The full name of a snapshot.
pub(crate) fn snapshot_name(volume: &str, snapshot: &str) -> String {
    format!("{volume}@{snapshot}")
}
