//! Arithmetic and concatenation, with PostgreSQL's errors.

use std::borrow::Cow;

use rust_decimal::Decimal;

use crate::error::RowError;
use crate::expr::syntax::Arithmetic;
use crate::limits::MADE_TEXT_BYTES_MAX;
use crate::scalar::{Value, divide_numeric};
use crate::types::Type;

/// Evaluates an arithmetic operator, with a result of type `result`. Returns NULL if an operand is
/// NULL.
pub(crate) fn calculate(
    operator: Arithmetic,
    result: Type,
    left: &Value<'_>,
    right: &Value<'_>,
) -> Result<Value<'static>, RowError> {
    match (left, right) {
        (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
        (Value::Int(left), Value::Int(right)) => integers(operator, result, *left, *right),
        (Value::Numeric(left), Value::Numeric(right)) => {
            numerics(operator, *left, *right).map(Value::Numeric)
        }
        (Value::Float(left), Value::Float(right)) => {
            floats(operator, *left, *right).map(Value::Float)
        }
        (
            Value::Time(left) | Value::Interval(left),
            Value::Time(right) | Value::Interval(right),
        ) => {
            let us = match operator {
                Arithmetic::Subtract => left.checked_sub(*right),
                _ => left.checked_add(*right),
            };
            let us = us.ok_or(RowError::OutOfRange(result))?;
            Ok(if result == Type::Interval { Value::Interval(us) } else { Value::Time(us) })
        }
        _ => Err(RowError::InvalidArgument("operator does not exist for these operand types")),
    }
}

fn integers(
    operator: Arithmetic,
    result: Type,
    left: i64,
    right: i64,
) -> Result<Value<'static>, RowError> {
    let number = match operator {
        Arithmetic::Add => left.checked_add(right),
        Arithmetic::Subtract => left.checked_sub(right),
        Arithmetic::Multiply => left.checked_mul(right),
        Arithmetic::Divide | Arithmetic::Modulo if right == 0 => {
            return Err(RowError::DivisionByZero);
        }
        Arithmetic::Divide => left.checked_div(right),
        Arithmetic::Modulo => Some(left.checked_rem(right).unwrap_or(0)),
    };
    let out_of_range = RowError::OutOfRange(result);
    let number = number.ok_or(out_of_range)?;
    match result {
        Type::Int4 if i32::try_from(number).is_err() => Err(out_of_range),
        _ => Ok(Value::Int(number)),
    }
}

fn numerics(operator: Arithmetic, left: Decimal, right: Decimal) -> Result<Decimal, RowError> {
    let number = match operator {
        Arithmetic::Add => left.checked_add(right),
        Arithmetic::Subtract => left.checked_sub(right),
        Arithmetic::Multiply => left.checked_mul(right),
        Arithmetic::Divide => return divide_numeric(left, right),
        Arithmetic::Modulo if right.is_zero() => return Err(RowError::DivisionByZero),
        Arithmetic::Modulo => left.checked_rem(right).map(|mut it| {
            it.rescale(left.scale().max(right.scale()));
            it
        }),
    };
    number.ok_or(RowError::OutOfRange(Type::Numeric))
}

fn floats(operator: Arithmetic, left: f64, right: f64) -> Result<f64, RowError> {
    let number = match operator {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => left * right,
        Arithmetic::Divide if right == 0.0 && !left.is_nan() => {
            return Err(RowError::DivisionByZero);
        }
        Arithmetic::Divide => left / right,
        Arithmetic::Modulo => {
            return Err(RowError::InvalidArgument(
                "operator % is not supported for double precision",
            ));
        }
    };
    let is_overflow = number.is_infinite() && left.is_finite() && right.is_finite();
    let is_underflow = number == 0.0
        && left != 0.0
        && match operator {
            Arithmetic::Multiply => right != 0.0,
            Arithmetic::Divide => right.is_finite(),
            _ => false,
        };
    match is_overflow || is_underflow {
        true => Err(RowError::OutOfRange(Type::Float8)),
        false => Ok(number),
    }
}

pub(crate) fn negate(result: Type, value: Value<'_>) -> Result<Value<'_>, RowError> {
    match value {
        Value::Int(it) => integers(Arithmetic::Subtract, result, 0, it),
        Value::Numeric(it) => Ok(Value::Numeric(-it)),
        Value::Float(it) => Ok(Value::Float(-it)),
        Value::Interval(it) => {
            Ok(Value::Interval(it.checked_neg().ok_or(RowError::OutOfRange(result))?))
        }
        other => Ok(other),
    }
}

/// Evaluates `||`. Returns NULL if an operand is NULL.
pub(crate) fn concatenate<'a>(left: Value<'a>, right: Value<'a>) -> Result<Value<'a>, RowError> {
    match (left, right) {
        (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
        (Value::Bytes(left), Value::Bytes(right)) => {
            check_length(left.len() + right.len())?;
            Ok(Value::Bytes(Cow::Owned([left, right].concat())))
        }
        (left, right) => {
            let (Value::Text(left), Value::Text(right)) = (left.into_text(), right.into_text())
            else {
                return Ok(Value::Null);
            };
            check_length(left.len() + right.len())?;
            Ok(Value::Text(left + right))
        }
    }
}

pub(crate) fn check_length(bytes: usize) -> Result<(), RowError> {
    match bytes > MADE_TEXT_BYTES_MAX {
        true => Err(RowError::InvalidArgument("text result of the query too long")),
        false => Ok(()),
    }
}
