//! Expected states of volumes after a power failure, recorded while they are changed.
//!
//! Every step of a history has a number and the moment of the disk at which it began. After a cut,
//! the effects of all steps that had begun may be present. Those covered by a flush or a commit of
//! the table that was acknowledged by then must be present.

use std::collections::BTreeMap;
use std::sync::Arc;

use block_device::{BlockDevice, Geometry, SectorSize};
use model::{Block, ModelVolume};
use powercut::Moment;
use volumes::{CapacityClass, Durability, Reduction, Volume};

/// Contents of a block, or `None` for a hole.
pub(crate) type Value = Option<Arc<Block>>;

pub(crate) type Step = usize;

/// A volume in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    pub(crate) sector: SectorSize,
    pub(crate) reduction: usize,
    pub(crate) durability: Durability,
    pub(crate) capacity: CapacityClass,
}

impl Listed {
    pub(crate) fn of(volume: &Volume) -> Self {
        let reduction = Reduction::ALL.iter().position(|it| *it == volume.reduction());
        let Geometry { size_bytes, sector } = volume.geometry();
        Self {
            name: volume.name(),
            size_bytes,
            sector,
            reduction: reduction.expect("all are listed"),
            durability: volume.durability(),
            capacity: volume.capacity_class(),
        }
    }
}

/// The volumes of class `journal` and `image`, by id.
pub(crate) type Table = BTreeMap<u64, Listed>;

/// An acknowledgement: everything before the step is durable.
#[derive(Clone, Copy, Debug)]
struct Covered {
    before: Step,
    since: Moment,
}

/// Contents of blocks, without holes.
pub(crate) type Contents = BTreeMap<u64, Arc<Block>>;

/// Contents of a snapshot, which never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotTruth {
    pub(crate) size_bytes: u64,
    pub(crate) blocks: Arc<Contents>,
}

/// A snapshot: the id of its volume, its own name, and its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedSnapshot {
    pub(crate) volume: u64,
    pub(crate) name: String,
    pub(crate) truth: SnapshotTruth,
}

/// Snapshots by id.
pub(crate) type Snapshots = BTreeMap<u64, NamedSnapshot>;

/// Own names of all snapshots, by id.
pub(crate) type SnapshotNames = BTreeMap<u64, String>;

/// Known contents of one volume.
pub(crate) struct VolumeTruth {
    pub(crate) now: ModelVolume,
    blocks: BTreeMap<u64, Vec<(Step, Value)>>,
    covered: Vec<Covered>,
    /// Acknowledged shrinks, by first block.
    cuts: Vec<(u64, Covered)>,
    /// The volume has had one class and size from the beginning.
    pub(crate) is_unchanged: bool,
    /// Steps at which it changed to class `ram`.
    pub(crate) was_ram: Vec<Step>,
    /// First step at which it had class `journal` without an anchor.
    pub(crate) unanchored_since: Option<Step>,
}

/// An image that was saved, or that a failed save may have left.
struct Imaged {
    /// It contains the effects of all steps before this one.
    step: Step,
    /// Moment of its acknowledgement.
    since: Option<Moment>,
    volumes: Vec<u64>,
    snapshots: Snapshots,
}

#[derive(Default)]
pub(crate) struct Truth {
    /// Moments at which steps began.
    starts: Vec<Moment>,
    tables: Vec<(Step, Table, SnapshotNames)>,
    tables_covered: Vec<Covered>,
    /// Shrinks that no table covers yet: step, volume and first block.
    cuts_to_come: Vec<(Step, u64, u64)>,
    images: Vec<Imaged>,
    pub(crate) volumes: BTreeMap<u64, VolumeTruth>,
    /// Existing snapshots.
    pub(crate) snapshots: Snapshots,
}

impl SnapshotTruth {
    pub(crate) fn of(volume: &ModelVolume) -> Self {
        let contents = |block| Some((block, Arc::new(volume.block(block)?)));
        let blocks = volume.written_blocks().into_iter().filter_map(contents).collect();
        Self { size_bytes: volume.geometry().size_bytes, blocks: Arc::new(blocks) }
    }
}

impl VolumeTruth {
    pub(crate) fn new(size_bytes: u64) -> Self {
        // Its sector size is irrelevant to its contents.
        let now = ModelVolume::new(size_bytes, SectorSize::Bytes512);
        let (blocks, covered, cuts, was_ram) = Default::default();
        let unanchored_since = None;
        Self { now, blocks, covered, cuts, is_unchanged: true, was_ram, unanchored_since }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.now.geometry().size_bytes
    }

    /// Records the current contents of a block as the effect of `step`.
    pub(crate) fn note_block(&mut self, step: Step, block: u64) {
        let value = self.now.block(block).map(Arc::new);
        self.blocks.entry(block).or_default().push((step, value));
    }

    /// Records the current contents of all blocks that ever had any.
    pub(crate) fn note_all(&mut self, step: Step) {
        let known: Vec<u64> = self.blocks.keys().copied().collect();
        known.into_iter().for_each(|block| self.note_block(step, block));
    }

    pub(crate) fn note_covered(&mut self, before: Step, since: Moment) {
        self.covered.push(Covered { before, since });
    }

    /// Discards all earlier guarantees.
    pub(crate) fn forget_covered(&mut self) {
        self.covered.clear();
        self.cuts.clear();
    }

    /// Returns the step before which all effects on the block are durable at `moment`.
    fn floor(&self, block: u64, moment: Moment) -> Step {
        let cuts = self.cuts.iter().filter(|(first, _)| *first <= block);
        floor(self.covered.iter().chain(cuts.map(|(_, covered)| covered)), moment)
    }

    pub(crate) fn known_blocks(&self) -> impl Iterator<Item = u64> {
        self.blocks.keys().copied()
    }

    /// Returns the possible contents of a block after a cut, if steps up to `last` may have had
    /// their effect.
    fn possible(&self, block: u64, floor: Step, last: Step) -> Vec<Value> {
        let history = self.blocks.get(&block).map_or(&[][..], |history| &history[..]);
        let covered = history.partition_point(|(step, _)| *step < floor);
        let old = covered.checked_sub(1).and_then(|at| history[at].1.clone());
        let new = history[covered..].iter().take_while(|(step, _)| *step <= last);
        std::iter::once(old).chain(new.map(|(_, value)| value.clone())).collect()
    }
}

impl Truth {
    /// Returns the number of the step that begins now.
    pub(crate) fn begin_step(&mut self, now: Moment) -> Step {
        self.starts.push(now);
        self.starts.len() - 1
    }

    pub(crate) fn note_table(&mut self, step: Step, table: Table) {
        let names = self.snapshots.iter().map(|(&id, snapshot)| (id, snapshot.name.clone()));
        self.tables.push((step, table, names.collect()));
    }

    /// Returns whether the volume is in the last table.
    pub(crate) fn is_listed(&self, id: u64) -> bool {
        self.tables.last().is_some_and(|(_, table, _)| table.contains_key(&id))
    }

    /// Records that everything before the step is durable with respect to the table.
    pub(crate) fn note_table_covered(&mut self, before: Step, since: Moment) {
        self.tables_covered.push(Covered { before, since });
        for (step, id, first) in self.cuts_to_come.extract_if(.., |(step, _, _)| *step < before) {
            let volume = self.volumes.get_mut(&id).expect("every volume is known");
            volume.cuts.push((first, Covered { before: step + 1, since }));
        }
    }

    /// Records a shrink: once a table covers it, the earlier contents of blocks from `first` on are
    /// gone permanently.
    pub(crate) fn note_cut(&mut self, step: Step, id: u64, first: u64) {
        self.cuts_to_come.push((step, id, first));
    }

    /// Records an image, saved or possibly saved, of these volumes in their states before the step.
    pub(crate) fn note_image(&mut self, step: Step, since: Option<Moment>, volumes: Vec<u64>) {
        let mut snapshots = self.snapshots.clone();
        snapshots.retain(|_, snapshot| volumes.contains(&snapshot.volume));
        self.images.push(Imaged { step, since, volumes, snapshots });
    }

    /// Returns the images from which a pool may be restored after a cut: the last acknowledged one,
    /// and those begun later. Each is given by the step after its last.
    pub(crate) fn possible_images(&self, moment: Moment) -> Vec<Step> {
        self.images_that_may_be_newest(moment).iter().map(|image| image.step).collect()
    }

    fn images_that_may_be_newest(&self, moment: Moment) -> &[Imaged] {
        let begun = self.begun_images(moment);
        let from = begun.iter().rposition(|image| image.is_there(moment)).unwrap_or(0);
        &begun[from..]
    }

    fn begun_images(&self, moment: Moment) -> &[Imaged] {
        let last = self.last_step(moment);
        &self.images[..self.images.partition_point(|image| image.step <= last)]
    }

    /// Returns the possible sets of snapshots after a cut: those of an image that have not been
    /// deleted since, with their names at that time. Each says whether it may be missing, because
    /// nothing has been guaranteed of its volume since.
    pub(crate) fn possible_snapshots(&self, moment: Moment) -> Vec<Vec<PossibleSnapshot<'_>>> {
        let newest = self.images_that_may_be_newest(moment);
        let last = self.last_step(moment);
        let mut possible = Vec::new();
        for image in newest {
            for (_, _, names) in self.tables_that_may_be_found(moment) {
                let all = image.snapshots.iter().filter_map(|(&id, snapshot)| {
                    let was_ram = &self.volumes[&snapshot.volume].was_ram;
                    let may_be_missing =
                        was_ram.iter().any(|step| (image.step..=last).contains(step));
                    Some(PossibleSnapshot { id, name: names.get(&id)?, snapshot, may_be_missing })
                });
                possible.push(all.collect());
            }
        }
        if newest.first().is_none_or(|image| !image.is_there(moment)) {
            possible.push(Vec::new());
        }
        possible
    }

    /// Returns every snapshot in any image, by id.
    pub(crate) fn past_snapshots(
        &self,
        moment: Moment,
    ) -> impl Iterator<Item = (&u64, &NamedSnapshot)> {
        self.begun_images(moment).iter().flat_map(|image| &image.snapshots)
    }

    /// Returns whether some acknowledged image contains the volume, which has not had class `ram`
    /// since, without guarantees.
    pub(crate) fn is_imaged(&self, id: u64, moment: Moment) -> bool {
        let last = self.last_step(moment);
        let was_ram = self.volumes[&id].was_ram.iter().rfind(|step| **step <= last);
        let image = self.images.iter().rfind(|image| image.is_there(moment));
        image.is_some_and(|image| {
            image.volumes.contains(&id) && was_ram.is_none_or(|step| *step < image.step)
        })
    }

    /// Returns whether the volume may be unanchored, if it has class `journal`.
    pub(crate) fn may_be_unanchored(&self, id: u64, moment: Moment) -> bool {
        let last = self.last_step(moment);
        self.volumes[&id].unanchored_since.is_some_and(|step| step <= last)
    }

    /// Returns the contents of a block when a step began.
    pub(crate) fn value_before(&self, id: u64, block: u64, step: Step) -> Value {
        self.volumes[&id].possible(block, step, 0).swap_remove(0)
    }

    /// Returns the last step that may have had an effect by `moment`.
    fn last_step(&self, moment: Moment) -> Step {
        self.starts.partition_point(|&start| start <= moment).saturating_sub(1)
    }

    /// Returns the possible tables after a cut.
    pub(crate) fn possible_tables(&self, moment: Moment) -> Vec<&Table> {
        self.tables_that_may_be_found(moment).map(|(_, table, _)| table).collect()
    }

    fn tables_that_may_be_found(
        &self,
        moment: Moment,
    ) -> impl Iterator<Item = &(Step, Table, SnapshotNames)> {
        let (floor, last) = (floor(&self.tables_covered, moment), self.last_step(moment));
        let covered = self.tables.partition_point(|(step, _, _)| *step < floor);
        let from = covered.saturating_sub(1);
        self.tables[from..].iter().take_while(move |(step, _, _)| *step <= last)
    }

    /// Returns every table that existed by `moment`.
    pub(crate) fn past_tables(&self, moment: Moment) -> Vec<&Table> {
        let last = self.last_step(moment);
        let past = self.tables.iter().take_while(|(step, _, _)| *step <= last);
        past.map(|(_, table, _)| table).collect()
    }

    /// Returns the possible contents of a block after a cut.
    pub(crate) fn possible_values(&self, id: u64, block: u64, moment: Moment) -> Vec<Value> {
        let volume = &self.volumes[&id];
        volume.possible(block, volume.floor(block, moment), self.last_step(moment))
    }

    /// Returns all contents that a block ever had by `moment`.
    pub(crate) fn past_values(&self, id: u64, block: u64, moment: Moment) -> Vec<Value> {
        self.volumes[&id].possible(block, 0, self.last_step(moment))
    }
}

/// A possible snapshot.
#[derive(Debug)]
pub(crate) struct PossibleSnapshot<'truth> {
    pub(crate) id: u64,
    pub(crate) name: &'truth str,
    /// Snapshot in its state in the image.
    pub(crate) snapshot: &'truth NamedSnapshot,
    pub(crate) may_be_missing: bool,
}

impl Imaged {
    /// Returns whether it was acknowledged by then.
    fn is_there(&self, moment: Moment) -> bool {
        self.since.is_some_and(|since| since <= moment)
    }
}

/// Returns the step before which everything is durable at `moment`.
fn floor<'it>(covered: impl IntoIterator<Item = &'it Covered>, moment: Moment) -> Step {
    covered.into_iter().filter(|it| it.since <= moment).map(|it| it.before).max().unwrap_or(0)
}
