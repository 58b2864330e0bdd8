//! The filter of a query: the conditions of WHERE, those supported by an index first.
//!
//! Conditions are evaluated in order up to the first that is not true, so later ones cannot fail.
//! PostgreSQL's executor does the same, in an order of its own choice.

use std::ops::Bound;

use crate::error::RowError;
use crate::expr::{Comparison, Expr};
use crate::json::{Contained, Paths};
use crate::query::access::Access;
use crate::query::bounds::Interval;
use crate::row::Row;
use crate::scalar::Value;

/// Maximum bytes of a prefix that an index uses.
const PREFIX_BYTES_MAX: usize = 32;
/// Maximum combinations of values under which an index stores one filter.
const COMBINATIONS_MAX: usize = 256;

/// A compiled WHERE.
#[derive(Debug, PartialEq)]
pub struct Filter {
    /// Access by an index. The conditions that it covers come first in `conditions`.
    pub(crate) access: Access,
    conditions: Vec<Expr>,
    /// Number of conditions that hold for every record found by the index.
    answered: usize,
    /// Bytes contained in each value for which the first condition holds.
    contained: Option<Contained>,
}

impl Filter {
    pub(crate) fn new(condition: Option<Expr>, paths: &Paths) -> Self {
        let mut conditions = Vec::new();
        flatten(condition, &mut conditions);
        let mut filter = Self {
            access: Access::default(),
            conditions: Vec::new(),
            answered: 0,
            contained: None,
        };
        filter.take_equal(&mut conditions);
        if !filter.take_range(&mut conditions) {
            filter.take_prefix(&mut conditions);
        }
        filter.conditions.append(&mut conditions);
        filter.contained = filter.access.contained(paths);
        filter
    }

    /// Returns whether a record with this value may pass or fail. Most records that cannot are
    /// excluded much faster than by parsing them.
    #[inline]
    pub fn may_pass(&self, value: Option<&[u8]>) -> bool {
        self.contained.as_ref().is_none_or(|it| it.may_be_in(value.unwrap_or_default()))
    }

    pub(crate) fn contained(&self) -> Option<&Contained> {
        self.contained.as_ref()
    }

    /// Returns whether the record passes.
    pub fn passes(&self, row: &Row<'_>) -> Result<bool, RowError> {
        all_true(&self.conditions, row)
    }

    /// Same for a record found by the index: only evaluates conditions that the index does not
    /// cover.
    pub(crate) fn passes_rest(&self, row: &Row<'_>) -> Result<bool, RowError> {
        all_true(&self.conditions[self.answered..], row)
    }

    /// Extracts conditions such as `a = 1 AND b IN (2, 3)`, in the same order for all filters on
    /// these expressions.
    fn take_equal(&mut self, conditions: &mut Vec<Expr>) {
        let mut combinations = 1;
        let mut taken: Vec<(String, Expr)> = Vec::new();
        conditions.retain(|condition| {
            let Some((key, values)) = equality(condition) else { return true };
            let name = format!("{key:?}");
            let is_new = taken.iter().all(|(other, _)| *other != name);
            let fits = values.len().saturating_mul(combinations) <= COMBINATIONS_MAX;
            if !is_new || !fits {
                return true;
            }
            combinations *= values.len();
            taken.push((name, condition.clone()));
            false
        });
        taken.sort_by(|left, right| left.0.cmp(&right.0));
        for (_, condition) in taken {
            if let Some((key, values)) = equality(&condition) {
                self.access.equal.push((key.clone(), values));
            }
            self.conditions.push(condition);
        }
        self.answered = self.conditions.len();
    }

    /// Extracts all bounds of one expression, preferably one with bounds on both sides.
    fn take_range(&mut self, conditions: &mut Vec<Expr>) -> bool {
        let ranges = conditions.iter().filter_map(bounds);
        let merged = ranges.clone().map(|(key, _)| {
            let all = ranges.clone().filter(|(other, _)| *other == key);
            let interval = all.map(|(_, it)| it).fold(Interval::ALL, Interval::intersect);
            (key.clone(), interval)
        });
        let is_closed = |it: &(Expr, Interval)| it.1.is_closed();
        let Some(best) = merged.clone().find(is_closed).or_else(|| merged.clone().next()) else {
            return false;
        };
        let mut rest = Vec::with_capacity(conditions.len());
        for condition in conditions.drain(..) {
            match bounds(&condition).is_some_and(|(key, _)| *key == best.0) {
                true => self.conditions.push(condition),
                false => rest.push(condition),
            }
        }
        *conditions = rest;
        self.answered = self.conditions.len();
        self.access.range = Some(best);
        true
    }

    fn take_prefix(&mut self, conditions: &mut Vec<Expr>) {
        let prefixes = conditions.iter().enumerate().filter_map(|(at, it)| {
            let Expr::Like { operand, pattern } = it else { return None };
            let (prefix, is_all) = pattern.prefix()?;
            Some((at, operand, prefix, is_all))
        });
        let Some((at, operand, prefix, is_all)) = prefixes.max_by_key(|it| it.2.len()) else {
            return;
        };
        let end = (0..=prefix.len().min(PREFIX_BYTES_MAX)).rev();
        let end = end.clone().find(|it| prefix.is_char_boundary(*it)).unwrap_or(0);
        let answers = is_all && end == prefix.len();
        self.access.prefix = Some(((**operand).clone(), prefix[..end].to_owned()));
        self.conditions.push(conditions.remove(at));
        self.answered += usize::from(answers);
    }
}

fn all_true(conditions: &[Expr], row: &Row<'_>) -> Result<bool, RowError> {
    for condition in conditions {
        if !condition.is_true(row)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn flatten(condition: Option<Expr>, into: &mut Vec<Expr>) {
    match condition {
        None | Some(Expr::Literal(Value::Bool(true))) => {}
        Some(Expr::And(operands)) => operands.into_iter().for_each(|it| flatten(Some(it), into)),
        Some(other) => into.push(other),
    }
}

/// Matches `key = value` and `key IN (values)`.
fn equality(condition: &Expr) -> Option<(&Expr, Vec<Value<'static>>)> {
    match condition {
        Expr::Compare { comparison: Comparison::Equal, .. } => {
            let (key, _, value) = sides(condition)?;
            Some((key, vec![value.clone()]))
        }
        Expr::InSet { operand, set } if !set.has_null && !set.values.is_empty() => {
            Some((operand, set.values.clone()))
        }
        _ => None,
    }
}

/// Matches a comparison with a literal, which is moved to the right side.
fn sides(condition: &Expr) -> Option<(&Expr, Comparison, &Value<'static>)> {
    let Expr::Compare { comparison, left, right } = condition else { return None };
    match (&**left, &**right) {
        (Expr::Literal(_), Expr::Literal(_)) => None,
        (key, Expr::Literal(value)) if !value.is_null() => Some((key, *comparison, value)),
        (Expr::Literal(value), key) if !value.is_null() => {
            Some((key, comparison.mirrored(), value))
        }
        _ => None,
    }
}

fn bounds(condition: &Expr) -> Option<(&Expr, Interval)> {
    let (key, comparison, value) = sides(condition)?;
    let value = value.clone();
    let interval = match comparison {
        Comparison::Less => Interval { low: Bound::Unbounded, high: Bound::Excluded(value) },
        Comparison::LessOrEqual => Interval { low: Bound::Unbounded, high: Bound::Included(value) },
        Comparison::Greater => Interval { low: Bound::Excluded(value), high: Bound::Unbounded },
        Comparison::GreaterOrEqual => {
            Interval { low: Bound::Included(value), high: Bound::Unbounded }
        }
        Comparison::Equal | Comparison::NotEqual => return None,
    };
    Some((key, interval))
}
