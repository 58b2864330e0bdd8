//! Index of text prefixes: one lookup for each distinct length.

use std::collections::{BTreeMap, HashMap};

use crate::index::id::FilterId;

#[derive(Debug, Default)]
pub(super) struct Prefixes {
    filters: HashMap<Box<[u8]>, Vec<FilterId>>,
    /// Number of distinct prefixes of each length.
    lengths: BTreeMap<usize, usize>,
}

impl Prefixes {
    pub(super) fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    pub(super) fn insert(&mut self, prefix: &str, id: FilterId) {
        let filters = self.filters.entry(prefix.as_bytes().into()).or_default();
        if filters.is_empty() {
            *self.lengths.entry(prefix.len()).or_default() += 1;
        }
        filters.push(id);
    }

    pub(super) fn remove(&mut self, prefix: &str, id: FilterId) {
        let Some(filters) = self.filters.get_mut(prefix.as_bytes()) else { return };
        filters.retain(|it| *it != id);
        if !filters.is_empty() {
            return;
        }
        self.filters.remove(prefix.as_bytes());
        if let Some(count) = self.lengths.get_mut(&prefix.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = FilterId> {
        self.filters.values().flatten().copied()
    }

    /// Calls `found` for each prefix of `text`.
    pub(super) fn find(&self, text: &str, found: &mut impl FnMut(FilterId)) {
        for length in self.lengths.keys() {
            let Some(prefix) = text.as_bytes().get(..*length) else { return };
            for id in self.filters.get(prefix).into_iter().flatten() {
                found(*id);
            }
        }
    }
}
