//! Accumulator of one aggregate in one group, to which values are added and removed.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use rust_decimal::Decimal;

use crate::error::RowError;
use crate::expr::{Aggregate, AggregateKind};
use crate::result::float_sum::{ADDEND_MAX, FloatSum};
use crate::scalar::{Value, divide_numeric};
use crate::types::Type;

#[derive(Clone, Debug)]
pub(super) enum Accumulator {
    Count(u64),
    Exact(ExactSum),
    Float {
        sum: FloatSum,
        count: u64,
    },
    /// All values, for a minimum or maximum whose values may be removed.
    Values(BTreeMap<Ordered, u64>),
    /// Only the best value, if values are never removed.
    Best(Option<Value<'static>>),
}

/// Exact sum of decimals, with one partial sum for each scale, so that values can be subtracted
/// again.
#[derive(Clone, Debug, Default)]
pub(super) struct ExactSum {
    /// Scale, sum of mantissas, and their number.
    by_scale: Vec<(u32, i128, u64)>,
}

/// A value in the order of ORDER BY.
#[derive(Clone, Debug)]
pub(super) struct Ordered(Value<'static>);

impl Accumulator {
    /// Creates an accumulator. `forgets` is true if added values may be removed.
    pub(super) fn new(kind: AggregateKind, forgets: bool) -> Self {
        match kind {
            AggregateKind::Count => Self::Count(0),
            AggregateKind::SumExact | AggregateKind::MeanExact => Self::Exact(ExactSum::default()),
            AggregateKind::SumFloat | AggregateKind::MeanFloat => {
                Self::Float { sum: FloatSum::default(), count: 0 }
            }
            AggregateKind::Min | AggregateKind::Max if forgets => Self::Values(BTreeMap::new()),
            AggregateKind::Min | AggregateKind::Max => Self::Best(None),
        }
    }

    /// Checks whether `value` can be added. Must be called before any aggregate of the row changes.
    pub(super) fn check(value: &Value<'_>, kind: AggregateKind) -> Result<(), RowError> {
        let is_sum = matches!(kind, AggregateKind::SumFloat | AggregateKind::MeanFloat);
        match value {
            Value::Float(it) if is_sum && it.is_finite() && it.abs() > ADDEND_MAX => {
                Err(RowError::OutOfRange(Type::Float8))
            }
            _ => Ok(()),
        }
    }

    /// Adds a value that is not NULL.
    pub(super) fn add(&mut self, value: Value<'static>, kind: AggregateKind) {
        match self {
            Self::Count(count) => *count += 1,
            Self::Exact(sum) => sum.add(&value, 1),
            Self::Float { sum, count } => {
                *count += 1;
                sum.add(float(&value));
            }
            Self::Values(values) => *values.entry(Ordered(value)).or_default() += 1,
            Self::Best(best) => {
                let wanted =
                    if kind == AggregateKind::Min { Ordering::Less } else { Ordering::Greater };
                if best.as_ref().is_none_or(|it| value.order(it) == wanted) {
                    *best = Some(value);
                }
            }
        }
    }

    /// Removes a value that was added.
    pub(super) fn subtract(&mut self, value: Value<'static>) {
        match self {
            Self::Count(count) => *count = count.saturating_sub(1),
            Self::Exact(sum) => sum.add(&value, -1),
            Self::Float { sum, count } => {
                *count = count.saturating_sub(1);
                sum.subtract(float(&value));
            }
            Self::Values(values) => {
                let key = Ordered(value);
                if let Some(count) = values.get_mut(&key) {
                    *count -= 1;
                    if *count == 0 {
                        values.remove(&key);
                    }
                }
            }
            Self::Best(_) => {}
        }
    }

    /// Returns the number of values stored individually.
    pub(super) fn kept_count(&self) -> usize {
        if let Self::Values(values) = self { values.len() } else { 0 }
    }

    /// Returns the aggregate's value. Without values, it is NULL, except for a count.
    pub(super) fn result(&self, aggregate: &Aggregate) -> Result<Value<'static>, RowError> {
        let is_mean = matches!(aggregate.kind, AggregateKind::MeanExact | AggregateKind::MeanFloat);
        match self {
            Self::Count(count) => {
                Ok(Value::Int(i64::try_from(*count).map_err(|_| RowError::OutOfRange(Type::Int8))?))
            }
            Self::Exact(sum) => sum.result(aggregate.result, is_mean),
            Self::Float { count: 0, .. } => Ok(Value::Null),
            Self::Float { sum, count } if is_mean => {
                let count = i64::try_from(*count).map_err(|_| RowError::OutOfRange(Type::Int8))?;
                let count = crate::scalar::cast(Value::Int(count), Type::Float8)?;
                Ok(Value::Float(sum.total() / float(&count)))
            }
            Self::Float { sum, .. } => Ok(Value::Float(sum.total())),
            Self::Values(values) => {
                let best = match aggregate.kind {
                    AggregateKind::Min => values.first_key_value(),
                    _ => values.last_key_value(),
                };
                Ok(best.map_or(Value::Null, |(it, _)| it.0.clone()))
            }
            Self::Best(best) => Ok(best.clone().unwrap_or(Value::Null)),
        }
    }
}

impl ExactSum {
    /// Adds or subtracts: `sign` is 1 or -1. Mantissas have 96 bits, so 2^31 of them fit.
    fn add(&mut self, value: &Value<'_>, sign: i8) {
        let number = match value {
            Value::Int(it) => Decimal::from(*it),
            Value::Numeric(it) => *it,
            _ => return,
        };
        let scale = number.scale();
        let at = self.by_scale.iter().position(|it| it.0 == scale).unwrap_or_else(|| {
            self.by_scale.push((scale, 0, 0));
            self.by_scale.len() - 1
        });
        let (_, sum, count) = &mut self.by_scale[at];
        *sum = sum.wrapping_add(number.mantissa() * i128::from(sign));
        *count = count.saturating_add_signed(i64::from(sign));
        if *count == 0 {
            self.by_scale.swap_remove(at);
        }
    }

    /// Returns the sum or mean, with the maximum scale of the added values.
    fn result(&self, result: Type, is_mean: bool) -> Result<Value<'static>, RowError> {
        let out_of_range = RowError::OutOfRange(result);
        let Some(scale) = self.by_scale.iter().map(|it| it.0).max() else { return Ok(Value::Null) };
        let mut total: i128 = 0;
        let mut count = Decimal::ZERO;
        for (part_scale, sum, part_count) in &self.by_scale {
            let part = 10_i128.checked_pow(scale - part_scale).and_then(|it| sum.checked_mul(it));
            total = part.and_then(|it| total.checked_add(it)).ok_or(out_of_range)?;
            count += Decimal::from(*part_count);
        }
        if result == Type::Int8 {
            return i64::try_from(total).map(Value::Int).map_err(|_| out_of_range);
        }
        let total = Decimal::try_from_i128_with_scale(total, scale).map_err(|_| out_of_range)?;
        match is_mean {
            true => Ok(Value::Numeric(divide_numeric(total, count)?)),
            false => Ok(Value::Numeric(total)),
        }
    }
}

fn float(value: &Value<'_>) -> f64 {
    if let Value::Float(it) = value { *it } else { 0.0 }
}

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.0.order(&other.0).is_eq()
    }
}

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.order(&other.0)
    }
}
