//! Offsets of all current values, with which a reader scans them in log order and reads each batch
//! once.
//!
//! Offsets are divided into runs of 65,536. Each run is a sorted list (2 bytes per value) or a
//! bitmap (8 KiB), whichever is shorter, as in Roaring bitmaps (Lemire and others, 2016). Runs are
//! copied on write, so a copy of the whole set is cheap and immutable.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const RUN_BITS: u32 = 16;
const RUN_OFFSETS: i64 = 1 << RUN_BITS;

const WORD_COUNT: usize = 1 << (RUN_BITS - 6);

/// Maximum entries of a list. A longer one would be larger than a bitmap.
const LIST_MAX: usize = 4096;

/// Number of offsets at which a bitmap is converted back to a list.
const LIST_AGAIN: usize = 3072;

#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    runs: BTreeMap<i64, Arc<Run>>,
    count: usize,
}

/// Offsets in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) offsets: Offsets,
    /// Lower bound of the timestamps of the run's values: Unix milliseconds.
    pub(crate) oldest_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Offsets {
    List(Vec<u16>),
    Bits { words: Box<[u64; WORD_COUNT]>, count: usize },
}

impl Live {
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the memory size, including runs shared with copies.
    pub(crate) fn size_bytes(&self) -> usize {
        // Nodes of the map are assumed to be two thirds full.
        let each = 2 * size_of::<usize>() + size_of::<Run>() + 3 * size_of::<(i64, usize)>() / 2;
        self.runs.values().map(|run| each + run.offsets.size_bytes()).sum()
    }

    pub(crate) fn insert(&mut self, offset: i64, timestamp_ms: i64) {
        let (number, within) = split(offset);
        let run = Arc::make_mut(self.runs.entry(number).or_default());
        run.oldest_ms = run.oldest_ms.min(timestamp_ms);
        self.count += usize::from(run.offsets.insert(within));
    }

    /// Removes an offset. Returns whether it was present.
    pub(crate) fn remove(&mut self, offset: i64) -> bool {
        let (number, within) = split(offset);
        let Some(run) = self.runs.get_mut(&number) else { return false };
        if !run.offsets.contains(within) {
            return false;
        }
        if run.offsets.count() == 1 {
            self.runs.remove(&number);
        } else {
            Arc::make_mut(run).offsets.remove(within);
        }
        self.count -= 1;
        true
    }

    /// Returns the first offset from `offset` on.
    pub(crate) fn next(&self, offset: i64) -> Option<i64> {
        let (number, within) = split(offset);
        if let Some(found) = self.runs.get(&number).and_then(|run| run.offsets.next(within)) {
            return Some(number * RUN_OFFSETS + i64::from(found));
        }
        let (number, run) = self.runs.range(number + 1..).next()?;
        run.offsets.next(0).map(|found| number * RUN_OFFSETS + i64::from(found))
    }

    /// Returns a copy of the runs that contain these offsets.
    pub(crate) fn part(&self, offsets: Range<i64>) -> Self {
        let numbers = split(offsets.start).0..=split(offsets.end - 1).0;
        let runs: BTreeMap<i64, Arc<Run>> =
            self.runs.range(numbers).map(|(number, run)| (*number, Arc::clone(run))).collect();
        let count = runs.values().map(|run| run.offsets.count()).sum();
        Self { runs, count }
    }

    /// Removes all offsets outside a range.
    pub(crate) fn limit(&mut self, offsets: Range<i64>) {
        let (first, last) = (split(offsets.start).0, split(offsets.end).0);
        self.runs.retain(|number, _| (first..=last).contains(number));
        for number in [first, last] {
            let Some(run) = self.runs.get_mut(&number) else { continue };
            let is_in = |within: u16| offsets.contains(&(number * RUN_OFFSETS + i64::from(within)));
            let kept: Vec<u16> = run.offsets.iter().filter(|it| is_in(*it)).collect();
            match kept.is_empty() {
                true => drop(self.runs.remove(&number)),
                false => Arc::make_mut(run).offsets = Offsets::from_sorted(kept),
            }
        }
        self.count = self.runs.values().map(|run| run.offsets.count()).sum();
    }

    pub(crate) fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Iterates over runs in ascending order, starting at a number.
    pub(crate) fn runs_from(&self, number: i64) -> impl Iterator<Item = (i64, &Run)> {
        self.runs.range(number..).map(|(number, run)| (*number, &**run))
    }

    /// Returns the first run from `number` on that may contain a value at least this old.
    pub(crate) fn next_run_as_old(&self, number: i64, unix_ms: i64) -> Option<i64> {
        let mut runs = self.runs.range(number..);
        runs.find(|(_, run)| run.oldest_ms <= unix_ms).map(|(number, _)| *number)
    }

    pub(crate) fn change_oldest(&mut self, number: i64, change: impl FnOnce(i64) -> i64) {
        if let Some(run) = self.runs.get_mut(&number) {
            let run = Arc::make_mut(run);
            run.oldest_ms = change(run.oldest_ms);
        }
    }

    /// Inserts a run. Returns `false` if it is empty or its number is already present.
    pub(crate) fn put_run(&mut self, number: i64, run: Run) -> bool {
        let count = run.offsets.count();
        self.count += count;
        count > 0 && self.runs.insert(number, Arc::new(run)).is_none()
    }
}

/// Returns the range of offsets of a run.
pub(crate) fn offsets_of_run(number: i64) -> Range<i64> {
    number * RUN_OFFSETS..(number + 1) * RUN_OFFSETS
}

fn split(offset: i64) -> (i64, u16) {
    let within = u16::try_from(offset.rem_euclid(RUN_OFFSETS)).expect("a run has so many offsets");
    (offset.div_euclid(RUN_OFFSETS), within)
}

impl Default for Run {
    fn default() -> Self {
        Self { offsets: Offsets::List(Vec::new()), oldest_ms: i64::MAX }
    }
}

impl Offsets {
    /// Builds a run from offsets in ascending order.
    pub(crate) fn from_sorted(list: Vec<u16>) -> Self {
        if list.len() <= LIST_MAX {
            return Self::List(list);
        }
        let mut words = Box::new([0; WORD_COUNT]);
        list.iter().for_each(|it| words[word_of(*it)] |= bit_of(*it));
        Self::Bits { words, count: list.len() }
    }

    pub(crate) fn from_words(words: Box<[u64; WORD_COUNT]>) -> Self {
        let count = words.iter().map(|word| word.count_ones()).sum::<u32>();
        Self::Bits { words, count: usize::try_from(count).expect("a run has so many offsets") }
    }

    pub(crate) fn count(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Bits { count, .. } => *count,
        }
    }

    fn size_bytes(&self) -> usize {
        match self {
            Self::List(list) => list.capacity() * size_of::<u16>(),
            Self::Bits { .. } => size_of::<[u64; WORD_COUNT]>(),
        }
    }

    pub(crate) fn contains(&self, within: u16) -> bool {
        match self {
            Self::List(list) => list.binary_search(&within).is_ok(),
            Self::Bits { words, .. } => words[word_of(within)] & bit_of(within) != 0,
        }
    }

    /// Inserts an offset. Returns whether it was absent.
    fn insert(&mut self, within: u16) -> bool {
        match self {
            Self::List(list) => {
                let place = match list.last() {
                    // Fast path: most offsets are appended.
                    Some(last) if *last < within => list.len(),
                    _ => match list.binary_search(&within) {
                        Ok(_) => return false,
                        Err(place) => place,
                    },
                };
                if list.len() == list.capacity() {
                    list.reserve_exact(1 + list.len() / 8);
                }
                list.insert(place, within);
                if list.len() > LIST_MAX {
                    *self = Self::from_sorted(std::mem::take(list));
                }
                true
            }
            Self::Bits { words, count } => {
                let word = &mut words[word_of(within)];
                let is_new = *word & bit_of(within) == 0;
                *word |= bit_of(within);
                *count += usize::from(is_new);
                is_new
            }
        }
    }

    /// Removes an offset, which must be present.
    fn remove(&mut self, within: u16) {
        match self {
            Self::List(list) => {
                let place = list.binary_search(&within).expect("it is there");
                list.remove(place);
                if 4 * list.len() < 3 * list.capacity() {
                    list.shrink_to(list.len() + list.len() / 8);
                }
            }
            Self::Bits { words, count } => {
                words[word_of(within)] &= !bit_of(within);
                *count -= 1;
                if *count <= LIST_AGAIN {
                    *self = Self::List(self.iter().collect());
                }
            }
        }
    }

    /// Returns the first offset from `within` on.
    fn next(&self, within: u16) -> Option<u16> {
        match self {
            Self::List(list) => list.get(list.partition_point(|it| *it < within)).copied(),
            Self::Bits { words, .. } => {
                let first = word_of(within);
                let mut rest = words[first] & (u64::MAX << (within % 64));
                for at in first..WORD_COUNT {
                    if at > first {
                        rest = words[at];
                    }
                    if rest != 0 {
                        let found = 64 * u32::try_from(at).expect("small") + rest.trailing_zeros();
                        return Some(u16::try_from(found).expect("inside the run"));
                    }
                }
                None
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = u16> {
        let mut from = Some(0);
        std::iter::from_fn(move || {
            let found = self.next(from?)?;
            from = found.checked_add(1);
            Some(found)
        })
    }
}

fn word_of(within: u16) -> usize {
    usize::from(within) / 64
}

fn bit_of(within: u16) -> u64 {
    1 << (within % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use random::Random;

    use super::*;

    fn all(live: &Live) -> Vec<i64> {
        let mut from = 0;
        std::iter::from_fn(|| {
            let found = live.next(from)?;
            from = found + 1;
            Some(found)
        })
        .collect()
    }

    #[test]
    fn live_offsets_agree_with_a_set_and_copies_stay_as_they_are() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let (mut live, mut model) = (Live::default(), BTreeSet::new());
            let span = random.pick(&[20_000, 70_000, 1 << 30]);
            let offset =
                |random: &mut Random| i64::try_from(random.below(span)).expect("it is small");
            for step in 0..40_000 {
                let offset = offset(&mut random);
                if random.one_in(if step / 10_000 % 2 == 0 { 4 } else { 2 }) {
                    assert_eq!(live.remove(offset), model.remove(&offset));
                } else {
                    live.insert(offset, step);
                    model.insert(offset);
                }
            }
            let copy = live.clone();
            let expected: Vec<i64> = model.iter().copied().collect();
            assert_eq!((live.count(), all(&live)), (expected.len(), expected.clone()));
            let (one, other) = (offset(&mut random), offset(&mut random));
            let limits = one.min(other)..one.max(other) + 1;
            live.limit(limits.clone());
            let kept: Vec<i64> =
                expected.iter().copied().filter(|it| limits.contains(it)).collect();
            assert_eq!((live.count(), all(&live)), (kept.len(), kept));
            assert_eq!(all(&copy), expected);
        }
    }

    #[test]
    fn a_run_knows_how_old_its_oldest_value_may_be() {
        let mut live = Live::default();
        live.insert(5, 100);
        live.insert(6, 50);
        live.insert(RUN_OFFSETS, 70);
        assert_eq!(live.next_run_as_old(0, 49), None);
        assert_eq!(live.next_run_as_old(0, 50), Some(0));
        assert_eq!(live.next_run_as_old(1, 70), Some(1));
        live.change_oldest(0, |_| 100);
        assert_eq!(live.next_run_as_old(0, 60), None);
    }
}
