//! Access to the records of a filter: by an index, and by the bytes of their values.

use std::ops::Bound;

use rust_decimal::prelude::ToPrimitive;

use crate::expr::Expr;
use crate::json::{Contained, ContainedNumber, ContainedText, NumberType, Paths, Step};
use crate::query::bounds::Interval;
use crate::scalar::Value;

/// Way by which an index finds the records of a filter.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Access {
    /// Expressions and the values that they must equal, each one of its list.
    pub(crate) equal: Vec<(Expr, Vec<Value<'static>>)>,
    /// Among these, a range or a prefix.
    pub(crate) range: Option<(Expr, Interval)>,
    pub(crate) prefix: Option<(Expr, String)>,
}

impl Access {
    /// Bytes of each value for which the first condition holds, which is what an index is asked.
    /// `None` where it tells nothing of bytes.
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

/// The least and the most whole number around all that is in an interval.
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
