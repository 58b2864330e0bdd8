//! Interval index: intervals sorted by lower bound, with a tree of their maximum upper bounds.

use std::ops::{Bound, Range};

use crate::index::id::FilterId;
use crate::query::Interval;
use crate::query::bounds::{is_above, is_below, order_high, order_low};
use crate::scalar::Value;

#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// Sorted by lower bound.
    intervals: Vec<(Interval, FilterId)>,
    /// `ends[node]` is the index in `intervals` of the maximum upper bound below a node. Node 1 is
    /// the root, the children of `n` are `2n` and `2n + 1`, leaf `i` is node `leaf_count + i`.
    ends: Vec<Option<usize>>,
    leaf_count: usize,
}

/// A search for `value` in the first `count` intervals, whose lower bounds it satisfies.
struct Wanted<'a, 'v> {
    count: usize,
    value: &'a Value<'v>,
    found: &'a mut dyn FnMut(FilterId),
}

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Inserts an interval. Takes time proportional to the number of intervals.
    pub(super) fn insert(&mut self, interval: &Interval, id: FilterId) {
        let at =
            self.intervals.partition_point(|(it, _)| order_low(&it.low, &interval.low).is_le());
        self.intervals.insert(at, (interval.clone(), id));
        self.rebuild();
    }

    pub(super) fn remove(&mut self, id: FilterId) {
        self.intervals.retain(|(_, it)| *it != id);
        self.rebuild();
    }

    pub(super) fn all(&self) -> impl Iterator<Item = FilterId> {
        self.intervals.iter().map(|(_, id)| *id)
    }

    /// Calls `found` for each interval that contains `value`.
    pub(super) fn find(&self, value: &Value<'_>, found: &mut dyn FnMut(FilterId)) {
        let count = self.intervals.partition_point(|(it, _)| is_above(&it.low, value));
        if count > 0 {
            self.visit(1, 0..self.leaf_count, &mut Wanted { count, value, found });
        }
    }

    /// Visits the subtree of `node`, whose leaves are `leaves`. Skips subtrees whose intervals all
    /// end before the value.
    fn visit(&self, node: usize, leaves: Range<usize>, wanted: &mut Wanted<'_, '_>) {
        let Some(last) = self.ends[node] else { return };
        let high = &self.intervals[last].0.high;
        if leaves.start >= wanted.count || !is_below(high, wanted.value) {
            return;
        }
        if leaves.len() == 1 {
            (wanted.found)(self.intervals[leaves.start].1);
            return;
        }
        let middle = leaves.start + leaves.len() / 2;
        self.visit(2 * node, leaves.start..middle, wanted);
        self.visit(2 * node + 1, middle..leaves.end, wanted);
    }

    fn rebuild(&mut self) {
        self.leaf_count = self.intervals.len().next_power_of_two();
        self.ends.clear();
        self.ends.resize(2 * self.leaf_count, None);
        for index in 0..self.intervals.len() {
            self.ends[self.leaf_count + index] = Some(index);
        }
        for node in (1..self.leaf_count).rev() {
            self.ends[node] = self.later_end(self.ends[2 * node], self.ends[2 * node + 1]);
        }
    }

    fn later_end(&self, left: Option<usize>, right: Option<usize>) -> Option<usize> {
        let high = |it: usize| -> &Bound<Value<'static>> { &self.intervals[it].0.high };
        match (left, right) {
            (Some(left), Some(right)) if order_high(high(left), high(right)).is_ge() => Some(left),
            (_, Some(right)) => Some(right),
            (left, None) => left,
        }
    }
}
