//! `gcd`, `lcm` and `sign` for the types of numbers that PostgreSQL has them of.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Float64Type};
use datafusion::logical_expr::ScalarUDF;

use super::own::{Own, does_not_exist, of_arrow};
use crate::error::{SqlError, SqlState};

const PRECISION: u8 = 38;

/// Digits of an integer of 64 bits.
const INTEGER_PRECISION: u8 = 20;

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Own::udf("gcd", 2, common_type, |it| of_two(it, greatest_divisor)),
        Own::udf("lcm", 2, common_type, |it| of_two(it, least_multiple)),
        Own::udf("sign", 1, sign_type, |it| sign(&it[0])),
    ]
}

/// The narrowest type of PostgreSQL's that both numbers fit.
fn common_type(types: &[DataType]) -> Option<DataType> {
    let is_exact = |it: &DataType| it.is_integer() || it.is_decimal() || it.is_null();
    if !types.iter().all(is_exact) || types.iter().all(DataType::is_null) {
        return None;
    }
    Some(match types.iter().filter_map(scale_of).max() {
        Some(scale) => DataType::Decimal128(PRECISION, scale),
        None if types.contains(&DataType::Int64) => DataType::Int64,
        None => DataType::Int32,
    })
}

/// Digits behind the point of a numeric; an integer that no bigint is counts as one.
fn scale_of(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::UInt64 => Some(0),
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => Some(*scale),
        _ => None,
    }
}

/// Both columns as numbers of one unit, and what is computed of each two.
fn of_two(
    arrays: &[ArrayRef],
    compute: fn(i128, i128) -> Option<i128>,
) -> Result<ArrayRef, SqlError> {
    let types: Vec<_> = arrays.iter().map(|it| it.data_type().clone()).collect();
    let Some(to) = common_type(&types) else {
        return Err(does_not_exist("gcd", &types));
    };
    let scale = types.iter().filter_map(scale_of).max().unwrap_or(0);
    let (left, right) = (in_units(&arrays[0], scale)?, in_units(&arrays[1], scale)?);
    let found = left.iter().zip(&right).map(|pair| match pair {
        (Some(one), Some(other)) => compute(one, other).ok_or_else(|| too_large(&to)).map(Some),
        _ => Ok(None),
    });
    let found = found.collect::<Result<Decimal128Array, SqlError>>()?;
    let units = found.with_precision_and_scale(PRECISION, scale);
    let units = units.and_then(|it| it.validate_decimal_precision(PRECISION).map(|()| it));
    let units = units.map_err(|_| too_large(&to))?;
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&units, &to, &options).map_err(|_| too_large(&to))
}

/// Numbers in units of the last digit of `scale`.
fn in_units(array: &ArrayRef, scale: i8) -> Result<Decimal128Array, SqlError> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let to = DataType::Decimal128(PRECISION, scale);
    let numbers = cast_with_options(array, &to, &options).map_err(|_| too_large(&to))?;
    Ok(numbers.as_primitive::<Decimal128Type>().clone())
}

fn too_large(of: &DataType) -> SqlError {
    match of {
        DataType::Int32 => SqlError::new(SqlState::OUT_OF_RANGE, "integer out of range"),
        DataType::Int64 => SqlError::new(SqlState::OUT_OF_RANGE, "bigint out of range"),
        _ => SqlError::unsupported("a numeric of more than 38 digits is not supported"),
    }
}

fn greatest_divisor(one: i128, other: i128) -> Option<i128> {
    let (mut one, mut other) = (one.checked_abs()?, other.checked_abs()?);
    while other != 0 {
        (one, other) = (other, one % other);
    }
    Some(one)
}

fn least_multiple(one: i128, other: i128) -> Option<i128> {
    match greatest_divisor(one, other)? {
        0 => Some(0),
        divisor => (one / divisor).checked_mul(other)?.checked_abs(),
    }
}

/// Of integers it is that of floats, as in PostgreSQL.
fn sign_type(types: &[DataType]) -> Option<DataType> {
    match &types[0] {
        it if it.is_decimal() => Some(DataType::Decimal128(INTEGER_PRECISION, 0)),
        it if it.is_numeric() || it.is_null() => Some(DataType::Float64),
        _ => None,
    }
}

fn sign(array: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let floats = cast(array, &DataType::Float64).map_err(of_arrow)?;
    let floats = floats.as_primitive::<Float64Type>();
    let sign_of = |it: f64| match it {
        it if it > 0.0 => 1.0,
        it if it < 0.0 => -1.0,
        _ => 0.0,
    };
    let signs: Float64Array = floats.unary(sign_of);
    match array.data_type().is_decimal() {
        true => cast(&signs, &DataType::Decimal128(INTEGER_PRECISION, 0)).map_err(of_arrow),
        false => Ok(Arc::new(signs)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_are_those_of_both_numbers() {
        for (one, other, divisor, multiple) in [
            (12, 18, 6, 36),
            (-4, 6, 2, 12),
            (0, 5, 5, 0),
            (0, 0, 0, 0),
            (i128::from(i64::MIN), -1, 1, 1 << 63),
        ] {
            assert_eq!(greatest_divisor(one, other), Some(divisor), "{one} and {other}");
            assert_eq!(least_multiple(one, other), Some(multiple), "{one} and {other}");
        }
        assert_eq!(least_multiple(i128::MAX, i128::MAX - 1), None);
    }
}
