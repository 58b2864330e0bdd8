//! Access paths of a filter: index conditions, and bytes that values must contain.

use std::ops::Bound;

use rust_decimal::prelude::ToPrimitive;

use crate::expr::Expr;
use crate::json::{Contained, ContainedNumber, ContainedText, NumberType, Paths, Step};
use crate::query::bounds::Interval;
use crate::scalar::Value;

/// Conditions by which an index finds the records of a filter.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Access {
    /// Expressions, and for each the list of values of which it must equal one.
    pub(crate) equal: Vec<(Expr, Vec<Value<'static>>)>,
    /// A range or a prefix in addition.
    pub(crate) range: Option<(Expr, Interval)>,
    pub(crate) prefix: Option<(Expr, String)>,
}

impl Access {
    /// Returns the bytes contained in each value for which the first index condition holds, or
    /// `None` if it implies none.
    pub(super) fn contained(&self, paths: &Paths) -> Option<Contained> {
        if let Some((key, values)) = self.equal.first() {
            if let (Expr::PathText(_), [Value::Text(text)]) = (key, &values[..]) {
                return ContainedText::new(text).map(Contained::Text);
            }
            let around = values.iter().map(whole_numbers_around).collect::<Option<Vec<_>>>()?;
            let low = around.iter().map(|it| it.0).min()?;
            let high = around.iter().map(|it| it.1).max()?;
            return number(key, (low, high), paths);
        }
        if let Some((key, interval)) = &self.range {
            return number(key, ends(interval)?, paths);
        }
        match &self.prefix {
            Some((Expr::PathText(_), prefix)) => ContainedText::new(prefix).map(Contained::Text),
            _ => None,
        }
    }
}

fn number(key: &Expr, ends: (i64, i64), paths: &Paths) -> Option<Contained> {
    let (Expr::Cast { to, operand } | Expr::CastOrNull { to, operand }) = key else { return None };
    let Expr::PathText(path) = &**operand else { return None };
    let Step::Key(key) = paths.steps(*path).last()? else { return None };
    ContainedNumber::new(key, NumberType::of(*to)?, ends).map(Contained::Number)
}

/// Returns the integer bounds of an interval, rounded outwards.
fn ends(interval: &Interval) -> Option<(i64, i64)> {
    let low = match &interval.low {
        Bound::Unbounded => i64::MIN,
        Bound::Included(value) | Bound::Excluded(value) => whole_numbers_around(value)?.0,
    };
    let high = match &interval.high {
        Bound::Unbounded => i64::MAX,
        Bound::Included(value) | Bound::Excluded(value) => whole_numbers_around(value)?.1,
    };
    Some((low, high))
}

fn whole_numbers_around(value: &Value<'_>) -> Option<(i64, i64)> {
    match value {
        Value::Int(it) => Some((*it, *it)),
        Value::Numeric(it) => Some((it.floor().to_i64()?, it.ceil().to_i64()?)),
        Value::Float(it) => ContainedNumber::whole_around(*it),
        _ => None,
    }
}
