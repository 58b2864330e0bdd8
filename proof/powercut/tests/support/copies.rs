//! Snapshots, clones, restores and classes of capacity in a history.
//!
//! Each of them may be refused, for lack of memory or because of a name: then nothing has changed.

use block_device::BlockDevice;
use volume::{CapacityClass, Durability};

use crate::support::History;
use crate::support::history::{name_of, slot_name};
use crate::support::truth::{Contents, SnapshotTruth, Step, VolumeTruth};

/// More of them would fill the pool.
const SNAPSHOTS_MAX: usize = 5;

const OWN_NAMES: [&str; 2] = ["early", "late"];

impl History {
    /// Does something with copies of volumes.
    pub(crate) fn copy(&mut self) {
        match self.random.below(10) {
            0..4 => self.create_snapshots(),
            4 => self.delete_some_snapshot(),
            5..8 => self.clone_volume(),
            _ => self.restore_snapshot(),
        }
    }

    /// Of one volume or of two at one instant.
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
        self.begin_step();
        let names: Vec<&str> = sources.iter().map(|(name, _)| &name[..]).collect();
        if self.site.engine.create_snapshots(&names, &name_of(own_name), 1).is_err() {
            return;
        }
        for (_, id) in sources {
            let snapshot = SnapshotTruth::of(&self.truth.volumes[&id].now);
            self.truth.snapshots.insert((id, own_name.to_owned()), snapshot);
        }
    }

    fn some_snapshot(&mut self) -> Option<(u64, String)> {
        let place = self.random.index(self.truth.snapshots.len().max(1));
        self.truth.snapshots.keys().nth(place).cloned()
    }

    /// The present name of a volume that is there.
    fn name_of_volume(&self, id: u64) -> String {
        let volumes = self.site.engine.volumes();
        let volume = volumes.iter().find(|volume| volume.id() == id);
        volume.expect("a volume with snapshots is there").name()
    }

    fn delete_some_snapshot(&mut self) {
        if let Some(key) = self.some_snapshot() {
            self.delete_snapshot(&key);
        }
    }

    fn delete_snapshot(&mut self, key: &(u64, String)) {
        let volume = self.name_of_volume(key.0);
        self.begin_step();
        self.site.engine.delete_snapshot(&volume, &key.1).expect("it is there");
        self.truth.snapshots.remove(key);
    }

    /// A volume is deleted after its snapshots.
    pub(crate) fn delete_snapshots_of(&mut self, id: u64) {
        let keys: Vec<_> = self.truth.snapshots.keys().filter(|key| key.0 == id).cloned().collect();
        keys.iter().for_each(|key| self.delete_snapshot(key));
    }

    /// Of a volume or of a snapshot.
    fn clone_volume(&mut self) {
        let to = slot_name(self.random.below(super::history::SLOTS));
        let snapshot = self.some_snapshot().filter(|_| self.random.one_in(2));
        let (from, contents) = match snapshot {
            Some(key) => {
                let contents = self.truth.snapshots[&key].clone();
                (format!("{}@{}", self.name_of_volume(key.0), key.1), contents)
            }
            None => {
                let Some((name, id)) = self.some_volume() else { return };
                (name, SnapshotTruth::of(&self.truth.volumes[&id].now))
            }
        };
        let step = self.begin_step();
        let Ok(clone) = self.site.engine.clone_volume(&from, name_of(&to)) else { return };
        let mut truth = VolumeTruth::new(contents.size_bytes);
        give(&mut truth, &contents.blocks, step);
        self.truth.volumes.insert(clone.id(), truth);
        self.changed_table(step);
    }

    /// Makes a volume what it was.
    fn restore_snapshot(&mut self) {
        let Some((id, own_name)) = self.some_snapshot() else { return self.create_snapshots() };
        let volume = self.name_of_volume(id);
        let step = self.begin_step();
        if self.site.engine.restore_snapshot(&volume, &own_name).is_err() {
            return;
        }
        let SnapshotTruth { size_bytes, blocks } = self.truth.snapshots[&(id, own_name)].clone();
        let truth = self.truth.volumes.get_mut(&id).expect("every volume is known");
        let is_same_size = self.site.engine.volume(&volume).is_ok_and(|volume| {
            assert_eq!(volume.geometry().size_bytes, size_bytes, "a restored volume's size");
            truth.size_bytes() == size_bytes
        });
        truth.is_unchanged &= is_same_size;
        truth.now.resize(0);
        truth.now.resize(size_bytes);
        give(truth, &blocks, step);
        truth.note_all(step);
        self.changed_table(step);
    }

    pub(crate) fn set_capacity(&mut self, name: &str) {
        let class = self.random.pick(&CapacityClass::ALL);
        let volume = self.site.engine.volume(name).expect("it was just seen");
        let changed = self.site.engine.set_capacity(name, class);
        assert!(changed.is_err() || volume.capacity_class() == class);
    }

    /// What a change of class costs snapshots: nothing, but in memory alone none is promised.
    pub(crate) fn note_class(&mut self, step: Step, id: u64, to: Durability) {
        if to == Durability::Ram {
            self.truth.volumes.get_mut(&id).expect("every volume is known").was_ram.push(step);
        }
    }
}

/// Takes over the contents of another.
fn give(truth: &mut VolumeTruth, blocks: &Contents, step: Step) {
    for (&block, contents) in blocks {
        truth.now.set_block(block, Some(**contents));
        truth.note_block(step, block);
    }
}
