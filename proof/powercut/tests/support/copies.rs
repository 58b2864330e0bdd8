//! Snapshots, clones, restores and capacity classes in a history.
//!
//! Each of them may fail, for lack of memory or because of a name. Then nothing has changed.

use block_device::BlockDevice;
use volumes::Durability;

use crate::support::History;
use crate::support::history::{is_made, name_of, slot_name};
use crate::support::kinds::count;
use crate::support::truth::{Contents, NamedSnapshot, SnapshotTruth, Step, VolumeTruth};

/// Maximum number of snapshots, as more would fill the pool.
const SNAPSHOTS_MAX: usize = 5;

const OWN_NAMES: [&str; 2] = ["early", "late"];

impl History {
    /// Performs an operation on copies of volumes.
    pub(crate) fn copy(&mut self) {
        match self.random.below(12) {
            0..4 => self.create_snapshots(),
            4 => self.delete_some_snapshot(),
            10..12 => self.rename_snapshot(),
            5..8 => self.clone_volume(),
            _ => self.restore_snapshot(),
        }
    }

    /// Snapshots one volume, or two at one instant.
    fn create_snapshots(&mut self) {
        if self.truth.snapshots.len() >= SNAPSHOTS_MAX {
            return self.delete_some_snapshot();
        }
        let mut sources: Vec<_> = (0..2).filter_map(|_| self.some_volume()).collect();
        sources.dedup();
        if self.random.one_in(2) {
            sources.truncate(1);
        }
        let own_name = self.random.pick(&OWN_NAMES);
        let step = self.begin_step();
        let names: Vec<&str> = sources.iter().map(|(name, _)| &name[..]).collect();
        let created = self.fixture.set.create_snapshots(&names, &name_of(own_name), 1);
        let Ok(created) = created else { return };
        count(if created.len() == 1 { "a snapshot" } else { "snapshots of one instant" });
        for ((_, volume), snapshot) in sources.into_iter().zip(created) {
            let truth = SnapshotTruth::of(&self.truth.volumes[&volume].now);
            let named = NamedSnapshot { volume, name: own_name.to_owned(), truth };
            self.truth.snapshots.insert(snapshot.id(), named);
        }
        self.note_table(step);
    }

    fn some_snapshot(&mut self) -> Option<u64> {
        let place = self.random.index(self.truth.snapshots.len().max(1));
        self.truth.snapshots.keys().nth(place).copied()
    }

    /// Returns the current names of a snapshot's volume and of the snapshot itself.
    fn names_of(&self, id: u64) -> (String, String) {
        let snapshot = &self.truth.snapshots[&id];
        (self.name_of_volume(snapshot.volume), snapshot.name.clone())
    }

    /// Returns the current name of an existing volume.
    fn name_of_volume(&self, id: u64) -> String {
        let volumes = self.fixture.engine.volumes();
        let volume = volumes.iter().find(|volume| volume.id() == id);
        volume.expect("a volume with snapshots is there").name()
    }

    fn delete_some_snapshot(&mut self) {
        if let Some(id) = self.some_snapshot() {
            self.delete_snapshot(id);
        }
    }

    fn delete_snapshot(&mut self, id: u64) {
        let (volume, own_name) = self.names_of(id);
        let step = self.begin_step();
        let deleted = self.fixture.set.delete_snapshot(&volume, &own_name);
        if is_made(&deleted) {
            count("a snapshot is deleted");
            let snapshot = self.truth.snapshots.remove(&id).expect("it was just seen");
            self.changed_table(step, snapshot.volume, deleted.is_ok());
        }
    }

    fn rename_snapshot(&mut self) {
        let Some(id) = self.some_snapshot() else { return };
        let (volume, own_name) = self.names_of(id);
        let to = self.random.pick(&OWN_NAMES);
        let step = self.begin_step();
        // Fails if there is one of that name.
        let renamed = self.fixture.set.rename_snapshot(&volume, &own_name, &name_of(to));
        if is_made(&renamed) {
            let snapshot = self.truth.snapshots.get_mut(&id).expect("it was just seen");
            count("a snapshot is renamed");
            snapshot.name = to.to_owned();
            let volume = snapshot.volume;
            self.changed_table(step, volume, renamed.is_ok());
        }
    }

    /// Deletes the snapshots of a volume, which must precede the volume.
    pub(crate) fn delete_snapshots_of(&mut self, id: u64) {
        let snapshots = self.truth.snapshots.iter();
        let ids: Vec<u64> =
            snapshots.filter(|(_, it)| it.volume == id).map(|(&snapshot, _)| snapshot).collect();
        ids.iter().for_each(|&id| self.delete_snapshot(id));
    }

    /// Clones a volume or a snapshot.
    fn clone_volume(&mut self) {
        let to = slot_name(self.random.below(super::history::SLOTS));
        let snapshot = self.some_snapshot().filter(|_| self.random.one_in(2));
        let (from, contents) = match snapshot {
            Some(id) => {
                let (volume, own_name) = self.names_of(id);
                (format!("{volume}@{own_name}"), self.truth.snapshots[&id].truth.clone())
            }
            None => {
                let Some((name, id)) = self.some_volume() else { return };
                (name, SnapshotTruth::of(&self.truth.volumes[&id].now))
            }
        };
        self.heal_before_making();
        let step = self.begin_step();
        let Ok(clone) = self.fixture.set.clone_volume(&from, name_of(&to)) else { return };
        count(if snapshot.is_some() { "a clone of a snapshot" } else { "a clone of a volume" });
        let mut truth = VolumeTruth::new(contents.size_bytes);
        give(&mut truth, &contents.blocks, step);
        truth.unanchored_since = Some(step);
        self.truth.volumes.insert(clone.id(), truth);
        self.changed_table(step, clone.id(), true);
    }

    /// Restores a volume from a snapshot.
    fn restore_snapshot(&mut self) {
        let Some(snapshot) = self.some_snapshot() else { return self.create_snapshots() };
        let (volume, own_name) = self.names_of(snapshot);
        let step = self.begin_step();
        let restored = self.fixture.set.restore_snapshot(&volume, &own_name);
        if !is_made(&restored) {
            return;
        }
        count("a restore");
        let NamedSnapshot { volume: id, truth, .. } = self.truth.snapshots[&snapshot].clone();
        let SnapshotTruth { size_bytes, blocks } = truth;
        let truth = self.truth.volumes.get_mut(&id).expect("every volume is known");
        let is_same_size = self.fixture.engine.volume(&volume).is_ok_and(|volume| {
            assert_eq!(volume.geometry().size_bytes, size_bytes, "a restored volume's size");
            truth.size_bytes() == size_bytes
        });
        truth.is_unchanged &= is_same_size;
        truth.unanchored_since.get_or_insert(step);
        truth.now.resize(0);
        truth.now.resize(size_bytes);
        give(truth, &blocks, step);
        truth.note_all(step);
        self.changed_table(step, id, restored.is_ok());
    }

    /// Records a change of class and its effect on snapshots: in class `ram` they lose their
    /// guarantee.
    pub(crate) fn note_class(&mut self, step: Step, id: u64, to: Durability) {
        if to == Durability::Ram {
            self.truth.volumes.get_mut(&id).expect("every volume is known").was_ram.push(step);
        }
    }
}

/// Takes over the contents of another volume.
fn give(truth: &mut VolumeTruth, blocks: &Contents, step: Step) {
    for (&block, contents) in blocks {
        truth.now.set_block(block, Some(**contents));
        truth.note_block(step, block);
    }
}
