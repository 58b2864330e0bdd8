//! `<<` and `>>` in as many bits as their left side has.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int16Array, Int32Array, Int64Array};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, ScalarUDF, lit};

use super::casts::cast_target;
use super::own::{Own, numbers};
use crate::error::SqlError;

/// A shift of one to the other; a literal is of the type that it has in PostgreSQL.
pub(super) fn shifted(left: Expr, right: Expr, to: Towards) -> Expr {
    let is_bigint = matches!(&left, Expr::ScalarFunction(call)
        if cast_target(&call.func) == Some(DataType::Int64));
    if is_bigint {
        return to.of_bigint().call(vec![left, right]);
    }
    let left = match left {
        Expr::Literal(ScalarValue::Int64(Some(number)), _) if i32::try_from(number).is_ok() => {
            lit(i32::try_from(number).unwrap_or_default())
        }
        other => other,
    };
    to.udf().call(vec![left, right])
}

/// Direction of a shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Towards {
    Left,
    Right,
}

impl Towards {
    fn udf(self) -> Arc<ScalarUDF> {
        match self {
            Self::Left => Own::udf("<<", 2, type_of, |it| shift(it, Self::Left, Left::Maybe)),
            Self::Right => Own::udf(">>", 2, type_of, |it| shift(it, Self::Right, Left::Maybe)),
        }
    }

    /// Of what was cast to bigint.
    fn of_bigint(self) -> Arc<ScalarUDF> {
        match self {
            Self::Left => Own::udf("bigint <<", 2, type_of, |it| shift(it, Self::Left, Left::Is)),
            Self::Right => Own::udf("bigint >>", 2, type_of, |it| shift(it, Self::Right, Left::Is)),
        }
    }
}

/// How sure it is that a left side of 64 bits is a bigint in PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Is,
    Maybe,
}

fn type_of(types: &[DataType]) -> Option<DataType> {
    let is_integer =
        |it: &DataType| matches!(it, DataType::Int16 | DataType::Int32 | DataType::Int64);
    match types {
        [left, right] if is_integer(left) && (is_integer(right) || right.is_null()) => {
            Some(left.clone())
        }
        [DataType::Null, right] if is_integer(right) => Some(DataType::Int64),
        _ => None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "bits beyond the type are dropped")]
#[expect(clippy::cast_sign_loss, reason = "it is between zero and 63")]
fn shift(arrays: &[ArrayRef], to: Towards, of: Left) -> Result<ArrayRef, SqlError> {
    let data_type = arrays[0].data_type();
    let (left, right) = (numbers(&arrays[0])?, numbers(&arrays[1])?);
    let in_32_bits = |left: i64, by: i64| {
        let (left, by) = (left as i32, (by & 31) as u32);
        i64::from(if to == Towards::Left { left << by } else { left >> by })
    };
    let in_64_bits = |left: i64, by: i64| {
        let by = (by & 63) as u32;
        if to == Towards::Left { left << by } else { left >> by }
    };
    let pairs = left.into_iter().zip(right).map(|pair| match pair {
        (Some(left), Some(by)) if *data_type == DataType::Int64 => {
            let found = in_64_bits(left, by);
            // It may be an integer of PostgreSQL that is none here.
            match of == Left::Maybe && i32::try_from(left).is_ok() && found != in_32_bits(left, by)
            {
                true => Err(SqlError::unsupported("a shift of a bigint that an integer is, too")
                    .with_hint("Multiply, or cast it to integer.")),
                false => Ok(Some(found)),
            }
        }
        (Some(left), Some(by)) => Ok(Some(in_32_bits(left, by))),
        _ => Ok(None),
    });
    let found = pairs.collect::<Result<Vec<_>, SqlError>>()?.into_iter();
    Ok(match data_type {
        DataType::Int16 => Arc::new(found.map(|it| it.map(|it| it as i16)).collect::<Int16Array>()),
        DataType::Int32 => Arc::new(found.map(|it| it.map(|it| it as i32)).collect::<Int32Array>()),
        _ => Arc::new(found.collect::<Int64Array>()),
    })
}
