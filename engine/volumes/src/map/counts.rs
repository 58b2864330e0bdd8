//! Numbers of blocks of a volume, by kind.

use std::sync::{Arc, Mutex, MutexGuard};

use page_store::{DirtyBits, PageRef, PageRefKind};
use sync::Striped;

use crate::pool::totals::{Total, Totals};

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
    /// Sums over all maps of this kind.
    totals: Arc<Totals>,
    /// True once the totals no longer contain these counts. Locked by changes without a lane.
    has_left: Mutex<bool>,
}

impl Counts {
    pub(crate) fn new(lane_count: usize, totals: Arc<Totals>) -> Self {
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
            totals,
            has_left: Mutex::new(false),
        }
    }

    /// Sets the counters of a map that was just loaded.
    pub(crate) fn set_loaded(&self, written: u64, filled: u64, untried: u64) {
        let has_left = self.hold();
        let counters = [(&self.written, written), (&self.filled, filled), (&self.untried, untried)];
        for (counter, count) in counters {
            self.add_to(counter, signed(count), &has_left);
        }
    }

    /// Sets these counters to the values of others. Neither changes meanwhile.
    pub(crate) fn become_equal_to(&self, other: &Self) {
        let has_left = self.hold();
        for (own, other) in self.all().into_iter().zip(other.all()) {
            self.add_to(own, signed(other.sum()) - signed(own.sum()), &has_left);
        }
    }

    /// Subtracts these counts from the totals, because the volume is deleted. Only changes without
    /// a lane may follow.
    pub(crate) fn leave_totals(&self) {
        let mut has_left = self.hold();
        if std::mem::replace(&mut *has_left, true) {
            return;
        }
        for counter in self.all() {
            if let Some(total) = self.total_of(counter) {
                total.add(self.check_part, -signed(counter.sum()));
            }
        }
    }

    fn hold(&self) -> MutexGuard<'_, bool> {
        self.has_left.lock().expect("nothing panics with the counts locked")
    }

    /// Adds to a counter without a lane.
    fn add_to(&self, counter: &Striped, amount: i64, has_left: &MutexGuard<'_, bool>) {
        counter.add(self.check_part, amount);
        if let Some(total) = self.total_of(counter).filter(|_| !**has_left) {
            total.add(self.check_part, amount);
        }
    }

    /// Returns the total that contains this counter, if there is one.
    fn total_of(&self, counter: &Striped) -> Option<&Total> {
        let totals = &*self.totals;
        let pairs = [
            (&self.written, &totals.written),
            (&self.filled, &totals.filled),
            (&self.untried, &totals.untried),
            (&self.absent, &totals.absent),
            (&self.damaged, &totals.damaged),
        ];
        pairs.into_iter().find(|(own, _)| std::ptr::eq(*own, counter)).map(|(_, total)| total)
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
        let has_left = self.hold();
        self.add_to(counter, -signed(counter.sum()), &has_left);
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
        let count = |counter: &Striped, total: Option<&Total>, was: bool, is: bool| {
            if was != is {
                let amount = i64::from(is) - i64::from(was);
                counter.add(lane, amount);
                if let Some(total) = total {
                    total.add(lane, amount);
                }
            }
        };
        let totals = &*self.totals;
        count(&self.written, Some(&totals.written), !old.is_hole(), !new.is_hole());
        count(&self.filled, Some(&totals.filled), is_fill(old), is_fill(new));
        count(&self.untried, Some(&totals.untried), old.is_untried(), new.is_untried());
        let dirty = |bits: DirtyBits| (old.is_dirty(bits), new.is_dirty(bits));
        let (was, is) = dirty(DirtyBits::JOURNAL);
        count(&self.unjournaled, None, was, is);
        let (was, is) = dirty(DirtyBits::IMAGE);
        count(&self.unsaved, None, was, is);
        count(&self.absent, Some(&totals.absent), is_absent(old), is_absent(new));
        let is_damaged = |entry: PageRef| entry.kind() == PageRefKind::Damaged;
        count(&self.damaged, Some(&totals.damaged), is_damaged(old), is_damaged(new));
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).expect("counts of blocks are small")
}
