//! States of volumes that a loss of power may leave: kept beside them while they are changed.
//!
//! Every step of a history has a number and the moment of the disk at which it began. A cut at a
//! moment may show the effects of all steps that had begun by then, and must show those that a
//! flush or a commit of the table covered which was acknowledged by then.

use std::collections::BTreeMap;
use std::sync::Arc;

use block_device::{BlockDevice, Geometry, SectorSize};
use model::{Block, ModelVolume};
use powercut::Moment;
use volumes::{CapacityClass, Durability, Reduction, Volume};

/// Contents of a block; `None` for a hole.
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

/// An acknowledgement: what was done before the step is durable.
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

/// A snapshot: the id of its volume, its own name, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedSnapshot {
    pub(crate) volume: u64,
    pub(crate) name: String,
    pub(crate) truth: SnapshotTruth,
}

/// Snapshots by id.
pub(crate) type Snapshots = BTreeMap<u64, NamedSnapshot>;

/// The own names of all snapshots, by id.
pub(crate) type SnapshotNames = BTreeMap<u64, String>;

/// Everything that is known of one volume's contents.
pub(crate) struct VolumeTruth {
    pub(crate) now: ModelVolume,
    blocks: BTreeMap<u64, Vec<(Step, Value)>>,
    covered: Vec<Covered>,
    /// Shrinks that were acknowledged: from which block on.
    cuts: Vec<(u64, Covered)>,
    /// The volume has been of one class and size from the first.
    pub(crate) is_unchanged: bool,
    /// The steps at which it became one of class `ram`.
    pub(crate) was_ram: Vec<Step>,
    /// The first step at which it was of class `journal` without a beginning in the journal.
    pub(crate) unanchored_since: Option<Step>,
}

/// An image that was saved, or that a failed save may have left.
struct Imaged {
    /// It has the effects of all steps before this one.
    step: Step,
    /// When it was acknowledged.
    since: Option<Moment>,
    volumes: Vec<u64>,
    snapshots: Snapshots,
}

#[derive(Default)]
pub(crate) struct Truth {
    /// When each step began.
    starts: Vec<Moment>,
    tables: Vec<(Step, Table, SnapshotNames)>,
    tables_covered: Vec<Covered>,
    /// Shrinks that no table covers yet: step, volume and first block.
    cuts_to_come: Vec<(Step, u64, u64)>,
    images: Vec<Imaged>,
    pub(crate) volumes: BTreeMap<u64, VolumeTruth>,
    /// Those that there are now.
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
        // Its sector is no part of what it holds.
        let now = ModelVolume::new(size_bytes, SectorSize::Bytes512);
        let (blocks, covered, cuts, was_ram) = Default::default();
        let unanchored_since = None;
        Self { now, blocks, covered, cuts, is_unchanged: true, was_ram, unanchored_since }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.now.geometry().size_bytes
    }

    /// Takes over what the block holds now, as the effect of `step`.
    pub(crate) fn note_block(&mut self, step: Step, block: u64) {
        let value = self.now.block(block).map(Arc::new);
        self.blocks.entry(block).or_default().push((step, value));
    }

    /// Takes over what all blocks hold that ever held anything.
    pub(crate) fn note_all(&mut self, step: Step) {
        let known: Vec<u64> = self.blocks.keys().copied().collect();
        known.into_iter().for_each(|block| self.note_block(step, block));
    }

    pub(crate) fn note_covered(&mut self, before: Step, since: Moment) {
        self.covered.push(Covered { before, since });
    }

    /// Nothing that was promised before counts any more.
    pub(crate) fn forget_covered(&mut self) {
        self.covered.clear();
        self.cuts.clear();
    }

    /// Effects on the block of steps before this one are durable at `moment`.
    fn floor(&self, block: u64, moment: Moment) -> Step {
        let cuts = self.cuts.iter().filter(|(first, _)| *first <= block);
        floor(self.covered.iter().chain(cuts.map(|(_, covered)| covered)), moment)
    }

    pub(crate) fn known_blocks(&self) -> impl Iterator<Item = u64> {
        self.blocks.keys().copied()
    }

    /// What a block may hold after a cut, where steps up to `last` may have had their effect.
    fn possible(&self, block: u64, floor: Step, last: Step) -> Vec<Value> {
        let history = self.blocks.get(&block).map_or(&[][..], |history| &history[..]);
        let covered = history.partition_point(|(step, _)| *step < floor);
        let old = covered.checked_sub(1).and_then(|at| history[at].1.clone());
        let new = history[covered..].iter().take_while(|(step, _)| *step <= last);
        std::iter::once(old).chain(new.map(|(_, value)| value.clone())).collect()
    }
}

impl Truth {
    /// The number of the step that begins now.
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

    /// Everything before the step is durable, as far as the table is concerned.
    pub(crate) fn note_table_covered(&mut self, before: Step, since: Moment) {
        self.tables_covered.push(Covered { before, since });
        for (step, id, first) in self.cuts_to_come.extract_if(.., |(step, _, _)| *step < before) {
            let volume = self.volumes.get_mut(&id).expect("every volume is known");
            volume.cuts.push((first, Covered { before: step + 1, since }));
        }
    }

    /// A volume was cut: once a table covers that, what its blocks from `first` on held before is
    /// gone for good.
    pub(crate) fn note_cut(&mut self, step: Step, id: u64, first: u64) {
        self.cuts_to_come.push((step, id, first));
    }

    /// An image was saved, or might have been: of these volumes, as they were before the step.
    pub(crate) fn note_image(&mut self, step: Step, since: Option<Moment>, volumes: Vec<u64>) {
        let mut snapshots = self.snapshots.clone();
        snapshots.retain(|_, snapshot| volumes.contains(&snapshot.volume));
        self.images.push(Imaged { step, since, volumes, snapshots });
    }

    /// The images that a pool may be restored from after a cut: the last that was acknowledged,
    /// and those that were begun later. Each with the step after its last.
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

    /// The snapshots that may be found after a cut, each time all of them: those of an image that
    /// have not been deleted since, under the names that they have then. With each of them whether
    /// it may be missing, because nothing was promised of its volume since.
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

    /// Every snapshot that some image has had, by id.
    pub(crate) fn past_snapshots(
        &self,
        moment: Moment,
    ) -> impl Iterator<Item = (&u64, &NamedSnapshot)> {
        self.begun_images(moment).iter().flat_map(|image| &image.snapshots)
    }

    /// Returns whether some acknowledged image has the volume, which was not of class `ram` since:
    /// then it had been promised nothing.
    pub(crate) fn is_imaged(&self, id: u64, moment: Moment) -> bool {
        let last = self.last_step(moment);
        let was_ram = self.volumes[&id].was_ram.iter().rfind(|step| **step <= last);
        let image = self.images.iter().rfind(|image| image.is_there(moment));
        image.is_some_and(|image| {
            image.volumes.contains(&id) && was_ram.is_none_or(|step| *step < image.step)
        })
    }

    /// Returns whether the journal may lack the beginning of the volume, if it is of that class.
    pub(crate) fn may_be_unanchored(&self, id: u64, moment: Moment) -> bool {
        let last = self.last_step(moment);
        self.volumes[&id].unanchored_since.is_some_and(|step| step <= last)
    }

    /// Contents of a block when a step began.
    pub(crate) fn value_before(&self, id: u64, block: u64, step: Step) -> Value {
        self.volumes[&id].possible(block, step, 0).swap_remove(0)
    }

    /// The last step that may have had an effect by `moment`.
    fn last_step(&self, moment: Moment) -> Step {
        self.starts.partition_point(|&start| start <= moment).saturating_sub(1)
    }

    /// The tables that may be found after a cut.
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

    /// Every table that there ever was by `moment`.
    pub(crate) fn past_tables(&self, moment: Moment) -> Vec<&Table> {
        let last = self.last_step(moment);
        let past = self.tables.iter().take_while(|(step, _, _)| *step <= last);
        past.map(|(_, table, _)| table).collect()
    }

    /// Contents that a block may have after a cut.
    pub(crate) fn possible_values(&self, id: u64, block: u64, moment: Moment) -> Vec<Value> {
        let volume = &self.volumes[&id];
        volume.possible(block, volume.floor(block, moment), self.last_step(moment))
    }

    /// Everything that a block ever held by `moment`.
    pub(crate) fn past_values(&self, id: u64, block: u64, moment: Moment) -> Vec<Value> {
        self.volumes[&id].possible(block, 0, self.last_step(moment))
    }
}

/// A snapshot that may be found.
#[derive(Debug)]
pub(crate) struct PossibleSnapshot<'truth> {
    pub(crate) id: u64,
    pub(crate) name: &'truth str,
    /// Snapshot as it was in the image.
    pub(crate) snapshot: &'truth NamedSnapshot,
    pub(crate) may_be_missing: bool,
}

impl Imaged {
    /// Whether it was acknowledged by then.
    fn is_there(&self, moment: Moment) -> bool {
        self.since.is_some_and(|since| since <= moment)
    }
}

/// Steps before this one are durable at `moment`.
fn floor<'it>(covered: impl IntoIterator<Item = &'it Covered>, moment: Moment) -> Step {
    covered.into_iter().filter(|it| it.since <= moment).map(|it| it.before).max().unwrap_or(0)
}
