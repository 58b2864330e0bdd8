//! Numbers of blocks of a volume, by kind.

use page_store::{DirtyBits, PageRef, PageRefKind};
use sync::Striped;

/// Counters of one volume, with a part for each lane, and one for the leak check.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Blocks that were written and not discarded.
    pub(crate) written: Striped,
    /// Part of `written`: blocks that a fill pattern describes.
    pub(crate) filled: Striped,
    /// Blocks whose page is stored uncompressed until compression is tried.
    pub(crate) untried: Striped,
    /// Blocks whose contents are not in the journal, and not in an image.
    pub(crate) unjournaled: Striped,
    pub(crate) unsaved: Striped,
    /// Blocks whose contents are in an image and not in memory yet.
    pub(crate) absent: Striped,
    /// Blocks whose contents are lost.
    pub(crate) damaged: Striped,
    check_part: usize,
}

impl Counts {
    pub(crate) fn new(lane_count: usize) -> Self {
        let new = || Striped::new(lane_count + 1);
        Self {
            written: new(),
            filled: new(),
            untried: new(),
            unjournaled: new(),
            unsaved: new(),
            absent: new(),
            damaged: new(),
            check_part: lane_count,
        }
    }

    /// Sets these counters to the values of others. Neither changes meanwhile.
    pub(crate) fn become_equal_to(&self, other: &Self) {
        for (own, other) in self.all().into_iter().zip(other.all()) {
            let signed = |count: u64| i64::try_from(count).expect("counts of blocks are small");
            own.add(self.check_part, signed(other.sum()) - signed(own.sum()));
        }
    }

    /// Number of blocks that refer to a page in memory.
    pub(crate) fn pages(&self) -> u64 {
        let others = [&self.filled, &self.absent, &self.damaged].map(Striped::sum);
        self.written.sum().saturating_sub(others.iter().sum())
    }

    fn all(&self) -> [&Striped; 7] {
        let Self { written, filled, untried, .. } = self;
        let Self { unjournaled, unsaved, absent, damaged, .. } = self;
        [written, filled, untried, unjournaled, unsaved, absent, damaged]
    }

    /// Clears the count of absent blocks.
    pub(crate) fn forget_absent(&self) {
        self.forget(&self.absent);
    }

    /// Clears the count of blocks that wait for compression.
    pub(crate) fn forget_untried(&self) {
        self.forget(&self.untried);
    }

    fn forget(&self, counter: &Striped) {
        let count = i64::try_from(counter.sum()).expect("volumes have fewer blocks");
        counter.add(self.check_part, -count);
    }

    /// Counts an entry found by the leak check. The caller holds its lock.
    pub(crate) fn note_found(&self, found: PageRef) {
        self.change(self.check_part, PageRef::HOLE, found);
    }

    /// Counts the change of an entry. The caller holds the lane of this index.
    #[inline(always)]
    pub(crate) fn change(&self, lane: usize, old: PageRef, new: PageRef) {
        let is_fill = |entry: PageRef| matches!(entry.kind(), PageRefKind::Fill(_));
        let is_absent = |entry: PageRef| matches!(entry.kind(), PageRefKind::Absent(_));
        let count = |counter: &Striped, was: bool, is: bool| {
            if was != is {
                counter.add(lane, i64::from(is) - i64::from(was));
            }
        };
        count(&self.written, !old.is_hole(), !new.is_hole());
        count(&self.filled, is_fill(old), is_fill(new));
        count(&self.untried, old.is_untried(), new.is_untried());
        let dirty = |bits: DirtyBits| (old.is_dirty(bits), new.is_dirty(bits));
        let (was, is) = dirty(DirtyBits::JOURNAL);
        count(&self.unjournaled, was, is);
        let (was, is) = dirty(DirtyBits::IMAGE);
        count(&self.unsaved, was, is);
        count(&self.absent, is_absent(old), is_absent(new));
        let is_damaged = |entry: PageRef| entry.kind() == PageRefKind::Damaged;
        count(&self.damaged, is_damaged(old), is_damaged(new));
    }
}
