//! Incrementally maintained first rows of an order: `ORDER BY … LIMIT n`.
//!
//! ```text
//! shown: n rows │ margin: up to m rows, in case some of the n go │ beyond: not kept
//! ```
//!
//! If more rows are removed than the margin holds and some were discarded beyond it, the next row
//! is unknown: all rows must be read again ([`Topped::RereadNeeded`]).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::query::OrderKey;
use crate::result::change::{ResultChange, ResultRow};
use crate::scalar::Value;

/// Minimum size of the margin, which otherwise equals LIMIT.
const MARGIN_MIN: usize = 16;

#[derive(Debug)]
pub(crate) struct TopRows {
    limit: usize,
    directions: Arc<[Direction]>,
    shown: BTreeMap<Place, Arc<ResultRow>>,
    margin: BTreeMap<Place, Arc<ResultRow>>,
    /// True if rows beyond the margin were discarded.
    has_beyond: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topped {
    Kept,
    /// The result lacks rows, which requires a reread of all records.
    RereadNeeded,
}

#[derive(Clone, Copy, Debug)]
struct Direction {
    descending: bool,
    nulls_first: bool,
}

/// Position of a row. Rows that are equal by ORDER BY are ordered by key.
#[derive(Clone, Debug)]
struct Place {
    order: Vec<Value<'static>>,
    key: Arc<[u8]>,
    directions: Arc<[Direction]>,
}

impl TopRows {
    pub(crate) fn new(order: &[OrderKey], limit: usize) -> Self {
        let directions = order
            .iter()
            .map(|it| Direction { descending: it.descending, nulls_first: it.nulls_first });
        Self {
            limit,
            directions: directions.collect(),
            shown: BTreeMap::new(),
            margin: BTreeMap::new(),
            has_beyond: false,
        }
    }

    /// Applies a change of the whole result. Appends changes of the shown rows to `out`.
    pub(crate) fn apply(&mut self, change: ResultChange, out: &mut Vec<ResultChange>) -> Topped {
        let place = |row: &Arc<ResultRow>| Place {
            order: row.order.clone(),
            key: change.key.clone(),
            directions: self.directions.clone(),
        };
        let before = change.before.as_ref().map(place);
        let after = change.after.as_ref().map(place);
        if let (Some(before), Some(after), Some(row)) = (&before, &after, &change.after)
            && before == after
        {
            self.replace(before, row, out);
            return Topped::Kept;
        }
        // Inserted first, so that a move within the shown rows leaves no gap.
        let mut changes = Vec::new();
        if let (Some(place), Some(row)) = (after, change.after) {
            self.insert(place, row, &mut changes);
        }
        let topped = before.map_or(Topped::Kept, |it| self.remove(&it, &mut changes));
        // Removals come before insertions, because both may have the same key.
        changes.sort_by_key(|it| it.before.is_none());
        out.append(&mut changes);
        topped
    }

    /// Removes all rows before a refill, and returns those that were shown.
    pub(crate) fn clear(&mut self) -> Vec<(Arc<[u8]>, Arc<ResultRow>)> {
        self.margin.clear();
        self.has_beyond = false;
        let shown = std::mem::take(&mut self.shown);
        shown.into_iter().map(|(place, row)| (place.key, row)).collect()
    }

    /// Iterates over the shown rows in order.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (&Arc<[u8]>, &Arc<ResultRow>)> {
        self.shown.iter().map(|(place, row)| (&place.key, row))
    }

    fn replace(&mut self, place: &Place, row: &Arc<ResultRow>, out: &mut Vec<ResultChange>) {
        if let Some(shown) = self.shown.get_mut(place) {
            let before = std::mem::replace(shown, row.clone());
            out.push(change(place, Some(before), Some(row.clone())));
        } else if let Some(kept) = self.margin.get_mut(place) {
            *kept = row.clone();
        }
    }

    fn insert(&mut self, place: Place, row: Arc<ResultRow>, out: &mut Vec<ResultChange>) {
        let is_full = self.shown.len() >= self.limit;
        let is_first = self.shown.last_key_value().is_none_or(|(last, _)| place < *last);
        if !is_full || is_first {
            out.push(change(&place, None, Some(row.clone())));
            self.shown.insert(place, row);
            if is_full && let Some((last, row)) = self.shown.pop_last() {
                out.push(change(&last, Some(row.clone()), None));
                self.keep(last, row);
            }
            return;
        }
        let is_known = self.margin.last_key_value().is_some_and(|(last, _)| place < *last);
        match is_known || !self.has_beyond {
            true => self.keep(place, row),
            false => self.has_beyond = true,
        }
    }

    fn keep(&mut self, place: Place, row: Arc<ResultRow>) {
        self.margin.insert(place, row);
        if self.margin.len() > self.limit.max(MARGIN_MIN) {
            self.margin.pop_last();
            self.has_beyond = true;
        }
    }

    fn remove(&mut self, place: &Place, out: &mut Vec<ResultChange>) -> Topped {
        let Some(row) = self.shown.remove(place) else {
            self.margin.remove(place);
            return Topped::Kept;
        };
        out.push(change(place, Some(row), None));
        if let Some((next, row)) = self.margin.pop_first() {
            out.push(change(&next, None, Some(row.clone())));
            self.shown.insert(next, row);
            return Topped::Kept;
        }
        if self.has_beyond { Topped::RereadNeeded } else { Topped::Kept }
    }
}

fn change(
    place: &Place,
    before: Option<Arc<ResultRow>>,
    after: Option<Arc<ResultRow>>,
) -> ResultChange {
    ResultChange { key: place.key.clone(), before, after }
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        let sides = self.order.iter().zip(&other.order).zip(self.directions.iter());
        let mut orders = sides.map(|((left, right), direction)| direction.order(left, right));
        let order = orders.find(|it| it.is_ne()).unwrap_or(Ordering::Equal);
        order.then_with(|| self.key.cmp(&other.key))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Place {}

impl Direction {
    fn order(self, left: &Value<'_>, right: &Value<'_>) -> Ordering {
        let first = if self.nulls_first { Ordering::Less } else { Ordering::Greater };
        match (left.is_null(), right.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => first,
            (false, true) => first.reverse(),
            (false, false) if self.descending => right.order(left),
            (false, false) => left.order(right),
        }
    }
}
