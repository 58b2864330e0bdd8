//! Filters with the same equality conditions, distinguished by a range, a prefix, or neither.

use crate::error::RowError;
use crate::expr::Expr;
use crate::index::id::FilterId;
use crate::index::prefixes::Prefixes;
use crate::index::ranges::Ranges;
use crate::query::Access;
use crate::row::Row;
use crate::scalar::Value;

#[derive(Debug, Default)]
pub(super) struct Bucket {
    plain: Vec<FilterId>,
    ranges: Vec<(Expr, Ranges)>,
    prefixes: Vec<(Expr, Prefixes)>,
}

impl Bucket {
    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.ranges.is_empty() && self.prefixes.is_empty()
    }

    pub(super) fn insert(&mut self, access: &Access, id: FilterId) {
        if let Some((key, interval)) = &access.range {
            of_key(&mut self.ranges, key).insert(interval, id);
        } else if let Some((key, prefix)) = &access.prefix {
            of_key(&mut self.prefixes, key).insert(prefix, id);
        } else {
            self.plain.push(id);
        }
    }

    pub(super) fn remove(&mut self, access: &Access, id: FilterId) {
        if let Some((key, _)) = &access.range {
            of_key(&mut self.ranges, key).remove(id);
            self.ranges.retain(|(_, it)| !it.is_empty());
        } else if let Some((key, prefix)) = &access.prefix {
            of_key(&mut self.prefixes, key).remove(prefix, id);
            self.prefixes.retain(|(_, it)| !it.is_empty());
        } else {
            self.plain.retain(|it| *it != id);
        }
    }

    /// Iterates over all filters in the bucket.
    pub(super) fn all(&self) -> impl Iterator<Item = FilterId> {
        let ranges = self.ranges.iter().flat_map(|(_, it)| it.all());
        let prefixes = self.prefixes.iter().flat_map(|(_, it)| it.all());
        self.plain.iter().copied().chain(ranges).chain(prefixes)
    }

    /// Calls `found` with each filter whose range or prefix matches `row`, and with an error for
    /// those whose expression could not be evaluated.
    pub(super) fn find(
        &self,
        row: &Row<'_>,
        found: &mut impl FnMut(FilterId, Result<(), RowError>),
    ) {
        self.plain.iter().for_each(|it| found(*it, Ok(())));
        for (key, ranges) in &self.ranges {
            match key.evaluate(row) {
                Ok(Value::Null) => {}
                Ok(value) => ranges.find(&value, &mut |it| found(it, Ok(()))),
                Err(error) => ranges.all().for_each(|it| found(it, Err(error))),
            }
        }
        for (key, prefixes) in &self.prefixes {
            match key.evaluate(row) {
                Ok(Value::Text(text)) => prefixes.find(&text, &mut |it| found(it, Ok(()))),
                Ok(_) => {}
                Err(error) => prefixes.all().for_each(|it| found(it, Err(error))),
            }
        }
    }
}

/// Returns the entry for `key`, created if necessary.
fn of_key<'a, T: Default>(all: &'a mut Vec<(Expr, T)>, key: &Expr) -> &'a mut T {
    let at = all.iter().position(|(it, _)| it == key).unwrap_or_else(|| {
        all.push((key.clone(), T::default()));
        all.len() - 1
    });
    &mut all[at].1
}
