//! Evaluation of expressions on a row, in SQL's three-valued logic.

use std::borrow::Cow;

use crate::error::RowError;
use crate::expr::call;
use crate::expr::like::{Pattern, compared};
use crate::expr::operate::{calculate, concatenate, negate};
use crate::expr::syntax::Expr;
use crate::json;
use crate::letters::lower;
use crate::limits::PATTERN_BYTES_MAX;
use crate::row::{Row, text_of};
use crate::scalar::{Value, cast};
use crate::types::Type;

impl Expr {
    /// Evaluates operands from left to right. AND, OR, CASE and COALESCE short-circuit: operands
    /// after the deciding one are not evaluated and cannot fail.
    pub(crate) fn evaluate<'a>(&'a self, row: &Row<'a>) -> Result<Value<'a>, RowError> {
        match self {
            Self::Literal(value) => Ok(value.borrowed()),
            Self::Not(operand) => Ok(match operand.evaluate(row)? {
                Value::Bool(it) => Value::Bool(!it),
                other => other,
            }),
            Self::And(operands) => decide(operands, row, false),
            Self::Or(operands) => decide(operands, row, true),
            Self::Compare { comparison, left, right } => {
                let (left, right) = (left.evaluate(row)?, right.evaluate(row)?);
                match left.is_null() || right.is_null() {
                    true => Ok(Value::Null),
                    false => Ok(Value::Bool(comparison.holds(left.order(&right)))),
                }
            }
            Self::Same(left, right) => {
                let (left, right) = (left.evaluate(row)?, right.evaluate(row)?);
                Ok(Value::Bool(left.order(&right).is_eq()))
            }
            Self::IsNull(operand) => Ok(Value::Bool(operand.evaluate(row)?.is_null())),
            Self::IsBool { value, operand } => {
                Ok(Value::Bool(operand.evaluate(row)? == Value::Bool(*value)))
            }
            Self::InSet { operand, set } => Ok(match operand.evaluate(row)? {
                Value::Null => Value::Null,
                value if set.contains(&value) => Value::Bool(true),
                _ if set.has_null => Value::Null,
                _ => Value::Bool(false),
            }),
            Self::InList { operand, list } => contains(operand, list, row),
            Self::Like { operand, pattern } => Ok(match operand.evaluate(row)? {
                Value::Text(text) => Value::Bool(pattern.matches(&text)),
                other => other,
            }),
            Self::LikeMade { operand, pattern, escape, folds } => {
                match (operand.evaluate(row)?, pattern.evaluate(row)?) {
                    (Value::Text(text), Value::Text(pattern)) => {
                        like_made(&text, &pattern, *escape, *folds)
                    }
                    _ => Ok(Value::Null),
                }
            }
            Self::Arithmetic { operator, result, left, right } => {
                calculate(*operator, *result, &left.evaluate(row)?, &right.evaluate(row)?)
            }
            Self::Negate { result, operand } => negate(*result, operand.evaluate(row)?),
            Self::Concat(left, right) => concatenate(left.evaluate(row)?, right.evaluate(row)?),
            Self::Cast { to, operand } => cast(operand.evaluate(row)?, *to),
            Self::CastOrNull { to, operand } => {
                Ok(cast(operand.evaluate(row)?, *to).unwrap_or(Value::Null))
            }
            Self::Case { branches, otherwise } => choose(branches, otherwise, row),
            Self::Coalesce(operands) => first(operands, row),
            Self::Call { call, arguments } => {
                let values = arguments.iter().map(|it| it.evaluate(row));
                call::apply(*call, values.collect::<Result<_, _>>()?)
            }
            Self::Joined(of) => match row.joined() {
                Some(joined) => of.evaluate(joined),
                None => Ok(Value::Null),
            },
            leaf => leaf.column(row),
        }
    }

    /// Returns whether a condition is TRUE for a row. NULL counts as false.
    pub(crate) fn is_true(&self, row: &Row<'_>) -> Result<bool, RowError> {
        match self.whole_number_passes(row) {
            Some(passes) => Ok(passes),
            None => Ok(self.evaluate(row)? == Value::Bool(true)),
        }
    }

    /// Fast path of [`Self::is_true`] for the comparison of an integer field with a literal, the
    /// most common filter. `None` for other expressions.
    fn whole_number_passes(&self, row: &Row<'_>) -> Option<bool> {
        let Self::Compare { comparison, left, right } = self else { return None };
        let Self::Cast { to: Type::Int8, operand } = &**left else { return None };
        let (Self::PathText(path), Self::Literal(Value::Int(limit))) = (&**operand, &**right)
        else {
            return None;
        };
        let number = json::whole_number(row.field(*path)?)?;
        Some(comparison.holds(number.cmp(limit)))
    }

    fn column<'a>(&'a self, row: &Row<'a>) -> Result<Value<'a>, RowError> {
        let record = &row.record;
        match self {
            Self::Partition => Ok(Value::Int(i64::from(record.partition))),
            Self::Offset => Ok(Value::Int(record.offset)),
            Self::Time => Ok(Value::Time(record.timestamp_ms.saturating_mul(1_000))),
            Self::KeyText => text_of(record.key),
            Self::KeyBytes => Ok(bytes_of(record.key)),
            Self::ValueText => row.value_text(),
            Self::ValueBytes => Ok(bytes_of(record.value)),
            Self::ValueJson => Ok(match row.value_text() {
                Ok(Value::Text(text)) if json::is_json(&text) => Value::Json(text),
                _ => Value::Null,
            }),
            Self::HeadersJson => row.headers_json(),
            Self::HeaderText(name) => text_of(row.header(name)),
            Self::PathJson(path) => {
                Ok(row.field(*path).map_or(Value::Null, |it| Value::Json(Cow::Borrowed(it))))
            }
            Self::PathText(path) => match row.field(*path).map(json::scalar_text) {
                // An escape without a valid character results in NULL, as in a SELECT.
                None | Some(Ok(None) | Err(_)) => Ok(Value::Null),
                Some(Ok(Some(text))) => Ok(Value::Text(text)),
            },
            Self::Result(index) => Ok(row.result(*index)),
            _ => unreachable!("all others have been evaluated by the caller"),
        }
    }
}

fn bytes_of(bytes: Option<&[u8]>) -> Value<'_> {
    bytes.map_or(Value::Null, |it| Value::Bytes(Cow::Borrowed(it)))
}

/// Evaluates AND (`decisive` is false) or OR (true).
fn decide<'a>(operands: &'a [Expr], row: &Row<'a>, decisive: bool) -> Result<Value<'a>, RowError> {
    let mut result = Value::Bool(!decisive);
    for operand in operands {
        match operand.evaluate(row)? {
            Value::Bool(it) if it == decisive => return Ok(Value::Bool(decisive)),
            Value::Null => result = Value::Null,
            _ => {}
        }
    }
    Ok(result)
}

/// Evaluates CASE: the result of the first condition that is true.
fn choose<'a>(
    branches: &'a [(Expr, Expr)],
    otherwise: &'a Expr,
    row: &Row<'a>,
) -> Result<Value<'a>, RowError> {
    for (condition, result) in branches {
        if condition.is_true(row)? {
            return result.evaluate(row);
        }
    }
    otherwise.evaluate(row)
}

/// Evaluates COALESCE: the first operand that is not NULL.
fn first<'a>(operands: &'a [Expr], row: &Row<'a>) -> Result<Value<'a>, RowError> {
    for operand in operands {
        let value = operand.evaluate(row)?;
        if !value.is_null() {
            return Ok(value);
        }
    }
    Ok(Value::Null)
}

fn contains<'a>(operand: &'a Expr, list: &'a [Expr], row: &Row<'a>) -> Result<Value<'a>, RowError> {
    let value = operand.evaluate(row)?;
    if value.is_null() {
        return Ok(Value::Null);
    }
    let mut result = Value::Bool(false);
    for item in list {
        let item = item.evaluate(row)?;
        if item.is_null() {
            result = Value::Null;
        } else if item.order(&value).is_eq() {
            return Ok(Value::Bool(true));
        }
    }
    Ok(result)
}

fn like_made<'a>(
    text: &str,
    pattern: &str,
    escape: Option<char>,
    folds: bool,
) -> Result<Value<'a>, RowError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(RowError::InvalidArgument("LIKE pattern too long"));
    }
    let found = match (Pattern::new(pattern, escape, folds), folds) {
        (Ok(pattern), _) => pattern.matches(text),
        // The pattern ends with the escape character: an error only if matching reaches it.
        (Err(_), false) => compared(text, pattern, escape, |one, other| one == other)?,
        (Err(_), true) => compared(text, pattern, escape, |one, other| lower(one) == lower(other))?,
    };
    Ok(Value::Bool(found))
}
