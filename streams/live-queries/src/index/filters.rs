//! The complete filter index of a table.

use std::sync::Arc;

use crate::error::{RowError, SqlError, SqlState};
use crate::index::bucket::Bucket;
use crate::index::equal::EqualGroup;
use crate::index::id::FilterId;
use crate::json::Contained;
use crate::query::Filter;
use crate::row::Row;
use crate::scalar::Value;

/// Maximum number of filters whose contained bytes are searched before a record is parsed: each
/// search takes at least a tenth of the time of parsing.
const CONTAINED_MAX: usize = 4;

/// Result of [`FilterIndex::find`] for a record. Reusable for the next record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Filters that the record passes, each once, in no order.
    pub passed: Vec<FilterId>,
    /// Filters that failed on the record, which therefore does not pass them.
    pub failed: Vec<(FilterId, RowError)>,
}

/// The filters of all live queries on one table.
#[derive(Debug)]
pub struct FilterIndex {
    filters: Vec<Option<Arc<Filter>>>,
    free: Vec<FilterId>,
    filters_max: usize,
    equal: Vec<EqualGroup>,
    rest: Bucket,
    /// Bytes that values must contain to pass a filter, for filters that imply some.
    contained: Vec<(FilterId, Contained)>,
}

impl FilterIndex {
    /// Creates an empty index for at most `filters_max` filters.
    pub fn new(filters_max: usize) -> Self {
        Self {
            filters: Vec::new(),
            free: Vec::new(),
            filters_max,
            equal: Vec::new(),
            rest: Bucket::default(),
            contained: Vec::new(),
        }
    }

    /// Returns the number of filters.
    pub fn len(&self) -> usize {
        self.filters.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a filter, which must have been compiled with the paths of the rows to be searched.
    /// Fails if the index is full.
    pub fn insert(&mut self, filter: Arc<Filter>) -> Result<FilterId, SqlError> {
        if self.len() >= self.filters_max {
            let message =
                format!("too many live queries on this table: the limit is {}", self.len());
            return Err(SqlError::new(SqlState::CONFIGURATION_LIMIT, message));
        }
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.filters.push(None);
                FilterId::new(self.filters.len() - 1)
            }
        };
        let access = &filter.access;
        if access.equal.is_empty() {
            self.rest.insert(access, id);
        } else {
            let keys = access.equal.iter().map(|(key, _)| key);
            let found = self.equal.iter().position(|it| it.keys.iter().eq(keys.clone()));
            let at = found.unwrap_or_else(|| {
                self.equal.push(EqualGroup::new(keys.cloned().collect()));
                self.equal.len() - 1
            });
            self.equal[at].insert(access, id);
        }
        self.contained.extend(filter.contained().map(|it| (id, it.clone())));
        self.filters[id.index()] = Some(filter);
        Ok(id)
    }

    /// Removes an existing filter.
    pub fn remove(&mut self, id: FilterId) {
        let filter =
            self.filters[id.index()].take().expect("only filters that are there are removed");
        let access = &filter.access;
        if access.equal.is_empty() {
            self.rest.remove(access, id);
        } else {
            let keys = access.equal.iter().map(|(key, _)| key);
            let group = self.equal.iter_mut().find(|it| it.keys.iter().eq(keys.clone()));
            group.expect("its group is kept while it is there").remove(access, id);
            self.equal.retain(|it| !it.is_empty());
        }
        self.contained.retain(|(it, _)| *it != id);
        self.free.push(id);
    }

    /// Returns whether [`Self::find`] can find a filter for a record with this value. `true` means
    /// that it may. For a few filters, the check is much faster than parsing the record; for more,
    /// it is skipped.
    pub fn may_find(&self, value: Option<&[u8]>) -> bool {
        let are_told = self.contained.len() == self.len() && self.len() <= CONTAINED_MAX;
        let value = value.unwrap_or_default();
        !are_told || self.contained.iter().any(|(_, it)| it.may_be_in(value))
    }

    /// Finds the filters that the record of `row` passes.
    pub fn find(&self, row: &Row<'_>, found: &mut Found) {
        found.passed.clear();
        found.failed.clear();
        let mut each = |id: FilterId, candidate: Result<(), RowError>| {
            let filter = self.filters[id.index()].as_ref();
            let filter = filter.expect("an index holds only filters that are there");
            match candidate.and_then(|()| filter.passes_rest(row)) {
                Ok(true) => found.passed.push(id),
                Ok(false) => {}
                Err(error) => found.failed.push((id, error)),
            }
        };
        let mut values: Vec<Value<'_>> = Vec::new();
        for group in &self.equal {
            group.find(row, &mut values, &mut each);
        }
        self.rest.find(row, &mut each);
    }
}
