//! Bitwise operators: `<<` and `>>` in the width of the left operand, and `&`, `|` and `#`. The
//! engine would simplify `x # x` to 0 even if `x` is NULL.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int16Array, Int32Array, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::{Expr, Operator, ScalarUDF};

use super::own::{Own, numbers, of_arrow};
use crate::error::SqlError;

/// Returns a call of a shift.
pub(super) fn shifted(left: Expr, right: Expr, to: Towards) -> Expr {
    to.udf().call(vec![left, right])
}

/// Returns a call of `&`, `|` or `#` on integers of these types, or `None` for other types.
pub(super) fn combined(
    (left, left_type): (Expr, &DataType),
    operator: Operator,
    (right, right_type): (Expr, &DataType),
) -> Option<Expr> {
    wider(&[left_type.clone(), right_type.clone()])?;
    let function = match operator {
        Operator::BitwiseAnd => Own::udf("&", 2, wider, |it| combine(it, |one, other| one & other)),
        Operator::BitwiseOr => Own::udf("|", 2, wider, |it| combine(it, |one, other| one | other)),
        Operator::BitwiseXor => Own::udf("#", 2, wider, |it| combine(it, |one, other| one ^ other)),
        _ => return None,
    };
    Some(function.call(vec![left, right]))
}

/// Returns the wider of two integer types.
fn wider(types: &[DataType]) -> Option<DataType> {
    let of = [DataType::Int16, DataType::Int32, DataType::Int64];
    let place = |it: &DataType| of.iter().position(|of| of == it);
    let [left, right] = types else { return None };
    Some(of[place(left)?.max(place(right)?)].clone())
}

fn combine(arrays: &[ArrayRef], both: fn(i64, i64) -> i64) -> Result<ArrayRef, SqlError> {
    let types: Vec<_> = arrays.iter().map(|it| it.data_type().clone()).collect();
    let (left, right) = (numbers(&arrays[0])?, numbers(&arrays[1])?);
    let pairs = left.into_iter().zip(right);
    let found: Int64Array = pairs.map(|(left, right)| Some(both(left?, right?))).collect();
    let data_type = wider(&types).unwrap_or(DataType::Int64);
    cast(&found, &data_type).map_err(of_arrow)
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
            Self::Left => Own::udf("<<", 2, type_of, |it| shift(it, Self::Left)),
            Self::Right => Own::udf(">>", 2, type_of, |it| shift(it, Self::Right)),
        }
    }
}

fn type_of(types: &[DataType]) -> Option<DataType> {
    let is_count = |it: &DataType| matches!(it, DataType::Int16 | DataType::Int32);
    match types {
        [left @ (DataType::Int16 | DataType::Int32 | DataType::Int64), right]
            if is_count(right) || right.is_null() =>
        {
            Some(left.clone())
        }
        [DataType::Null, right] if is_count(right) => Some(DataType::Int32),
        _ => None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "bits beyond the type are dropped")]
#[expect(clippy::cast_sign_loss, reason = "it is between zero and 63")]
fn shift(arrays: &[ArrayRef], to: Towards) -> Result<ArrayRef, SqlError> {
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
    let pairs = left.into_iter().zip(right).map(|(left, by)| {
        let (left, by) = (left?, by?);
        Some(if *data_type == DataType::Int64 {
            in_64_bits(left, by)
        } else {
            in_32_bits(left, by)
        })
    });
    Ok(match data_type {
        DataType::Int16 => Arc::new(pairs.map(|it| it.map(|it| it as i16)).collect::<Int16Array>()),
        DataType::Int64 => Arc::new(pairs.collect::<Int64Array>()),
        _ => Arc::new(pairs.map(|it| it.map(|it| it as i32)).collect::<Int32Array>()),
    })
}
