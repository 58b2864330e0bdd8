//! How many blocks of a volume hold something.

use page_store::{Entry, EntryKind};
use sync::Striped;

/// Counts of one volume, in a part for each lane, and one for whoever shows leaves to the sweep.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Blocks that were written and not discarded.
    pub(crate) written: Striped,
    /// Of those, the ones that a fill pattern describes.
    pub(crate) filled: Striped,
    /// Blocks whose page is stored as it is until somebody has time to compress it.
    pub(crate) untried: Striped,
    sweep_part: usize,
}

impl Counts {
    pub(crate) fn new(lane_count: usize) -> Self {
        let new = || Striped::new(lane_count + 1);
        Self { written: new(), filled: new(), untried: new(), sweep_part: lane_count }
    }

    /// Counts what the sweep found. The caller holds the sweep's lock.
    pub(crate) fn note_found(&self, found: Entry) {
        self.change(self.sweep_part, Entry::HOLE, found);
    }

    /// Counts what an exchanged entry changes. The caller holds the lane of this index.
    #[inline]
    pub(crate) fn change(&self, lane: usize, old: Entry, new: Entry) {
        let is_fill = |entry: Entry| i64::from(matches!(entry.kind(), EntryKind::Fill(_)));
        let is_written = |entry: Entry| i64::from(!entry.is_hole());
        let written = is_written(new) - is_written(old);
        if written != 0 {
            self.written.add(lane, written);
        }
        let filled = is_fill(new) - is_fill(old);
        if filled != 0 {
            self.filled.add(lane, filled);
        }
        let untried = i64::from(new.is_untried()) - i64::from(old.is_untried());
        if untried != 0 {
            self.untried.add(lane, untried);
        }
    }
}
