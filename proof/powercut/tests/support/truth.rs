//! What a loss of power may leave of volumes: kept beside them while they are changed.
//!
//! Every step of a history has a number and the moment of the disk at which it began. A cut at a
//! moment may show the effects of all steps that had begun by then, and must show those that a
//! flush or a commit of the table covered which was acknowledged by then.

use std::collections::BTreeMap;
use std::sync::Arc;

use block_device::SectorSize;
use model::{Block, ModelVolume};
use powercut::Moment;
use volume::Durability;

/// What a block holds; `None` for a hole.
pub(crate) type Value = Option<Arc<Block>>;

pub(crate) type Step = usize;

/// A volume in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) size_bytes: u64,
    pub(crate) reduction: usize,
    pub(crate) durability: Durability,
}

/// The volumes of class `journal` and `image`, by id.
pub(crate) type Table = BTreeMap<u64, Listed>;

/// An acknowledgement: what was done before the step is durable.
#[derive(Clone, Copy, Debug)]
struct Covered {
    before: Step,
    since: Moment,
}

/// Everything that is known of one volume's contents.
pub(crate) struct VolumeTruth {
    pub(crate) now: ModelVolume,
    blocks: BTreeMap<u64, Vec<(Step, Value)>>,
    covered: Vec<Covered>,
    /// The volume has been of one class and size from the first.
    pub(crate) is_unchanged: bool,
}

/// An image that was saved, or that a failed save may have left.
struct Imaged {
    /// It has the effects of all steps before this one.
    step: Step,
    /// When it was acknowledged.
    since: Option<Moment>,
    volumes: Vec<u64>,
}

#[derive(Default)]
pub(crate) struct Truth {
    /// When each step began.
    starts: Vec<Moment>,
    tables: Vec<(Step, Table)>,
    tables_covered: Vec<Covered>,
    images: Vec<Imaged>,
    pub(crate) volumes: BTreeMap<u64, VolumeTruth>,
}

impl VolumeTruth {
    pub(crate) fn new(size_bytes: u64) -> Self {
        let now = ModelVolume::new(size_bytes, SectorSize::Bytes4096);
        Self { now, blocks: BTreeMap::new(), covered: Vec::new(), is_unchanged: true }
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
        self.tables.push((step, table));
    }

    /// Everything before the step is durable, as far as the table is concerned.
    pub(crate) fn note_table_covered(&mut self, before: Step, since: Moment) {
        self.tables_covered.push(Covered { before, since });
    }

    /// An image was saved, or might have been: of these volumes, as they were before the step.
    pub(crate) fn note_image(&mut self, step: Step, since: Option<Moment>, volumes: Vec<u64>) {
        self.images.push(Imaged { step, since, volumes });
    }

    /// The images that a pool may be restored from after a cut: the last that was acknowledged,
    /// and those that were begun later. Each with the step behind its last.
    pub(crate) fn possible_images(&self, moment: Moment) -> Vec<Step> {
        let last = self.last_step(moment);
        let begun = self.images.iter().take_while(|image| image.step <= last);
        let begun: Vec<&Imaged> = begun.collect();
        let acknowledged = |image: &&Imaged| image.since.is_some_and(|since| since <= moment);
        let from = begun.iter().rposition(acknowledged).unwrap_or(0);
        begun[from..].iter().map(|image| image.step).collect()
    }

    /// Whether some acknowledged image has the volume.
    pub(crate) fn is_imaged(&self, id: u64, moment: Moment) -> bool {
        let is_acknowledged = |image: &&Imaged| image.since.is_some_and(|since| since <= moment);
        let last = self.images.iter().rfind(is_acknowledged);
        last.is_some_and(|image| image.volumes.contains(&id))
    }

    /// What a block held when a step began.
    pub(crate) fn value_before(&self, id: u64, block: u64, step: Step) -> Value {
        self.volumes[&id].possible(block, step, 0).swap_remove(0)
    }

    /// The last step that may have had an effect by `moment`.
    fn last_step(&self, moment: Moment) -> Step {
        self.starts.partition_point(|&start| start <= moment).saturating_sub(1)
    }

    /// The tables that may be found after a cut.
    pub(crate) fn possible_tables(&self, moment: Moment) -> Vec<&Table> {
        let (floor, last) = (floor(&self.tables_covered, moment), self.last_step(moment));
        let covered = self.tables.partition_point(|(step, _)| *step < floor);
        let from = covered.saturating_sub(1);
        let possible = self.tables[from..].iter().take_while(|(step, _)| *step <= last);
        possible.map(|(_, table)| table).collect()
    }

    /// Every table that there ever was by `moment`.
    pub(crate) fn past_tables(&self, moment: Moment) -> Vec<&Table> {
        let last = self.last_step(moment);
        let past = self.tables.iter().take_while(|(step, _)| *step <= last);
        past.map(|(_, table)| table).collect()
    }

    /// What a block may hold after a cut.
    pub(crate) fn possible_values(&self, id: u64, block: u64, moment: Moment) -> Vec<Value> {
        let volume = &self.volumes[&id];
        volume.possible(block, floor(&volume.covered, moment), self.last_step(moment))
    }

    /// Everything that a block ever held by `moment`.
    pub(crate) fn past_values(&self, id: u64, block: u64, moment: Moment) -> Vec<Value> {
        self.volumes[&id].possible(block, 0, self.last_step(moment))
    }
}

/// Steps before this one are durable at `moment`.
fn floor(covered: &[Covered], moment: Moment) -> Step {
    covered.iter().filter(|it| it.since <= moment).map(|it| it.before).max().unwrap_or(0)
}
