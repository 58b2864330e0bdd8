//! `gcd`, `lcm`, `sign`, `div` and functions on the digits of numerics, for the same numeric types
//! as in PostgreSQL.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Decimal256Array, Float64Array, Int32Array,
};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Float64Type};
use datafusion::logical_expr::ScalarUDF;
use num_bigint::BigInt;

use super::numerics::{Numeric, result_type};
use super::own::{Own, does_not_exist, numbers, of_arrow, texts};
use super::real_functions::numerics_of;
use crate::error::{SqlError, SqlState};

const PRECISION: u8 = 38;

/// Precision for a 64-bit integer.
const INTEGER_PRECISION: u8 = 20;

/// Function that implements `scale`, of a number and its text.
pub(super) const SCALE: &str = "scale_of";

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Own::udf("gcd", 2, common_type, |it| of_two(it, greatest_divisor)),
        Own::udf("lcm", 2, common_type, |it| of_two(it, least_multiple)),
        Own::udf("sign", 1, sign_type, |it| sign(&it[0])),
        Own::udf("div", 2, |it| is_exact(it).then_some(WHOLE), div),
        Own::udf("min_scale", 1, |it| is_exact(it).then_some(DataType::Int32), min_scale),
        Own::udf(SCALE, 2, |it| is_exact(&it[..1]).then_some(DataType::Int32), scale),
        Own::udf("trim_scale", 1, |it| is_exact(it).then(result_type), trim_scale),
        Own::udf("width_bucket", 4, bucket_type, width_bucket),
    ]
}

/// Returns the narrowest of PostgreSQL's types that holds both numbers.
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

/// Returns the scale of a numeric. UInt64 counts as one, since it exceeds bigint.
fn scale_of(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::UInt64 => Some(0),
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => Some(*scale),
        _ => None,
    }
}

/// Computes a function of two numbers, both at a common scale.
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

/// Converts numbers to units of the last digit of `scale`.
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
        _ => SqlError::unsupported("numeric with more than 38 digits is not supported"),
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

/// Type of numerics without fractional digits.
const WHOLE: DataType = DataType::Decimal128(PRECISION, 0);

fn is_exact(types: &[DataType]) -> bool {
    types.iter().all(|it| it.is_integer() || it.is_decimal() || it.is_null())
}

fn numerics(array: &ArrayRef) -> Result<Vec<Option<Numeric>>, SqlError> {
    numerics_of(array).map_err(SqlError::from)
}

/// Divides and truncates to integers.
fn div(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let (left, right) = (numerics(&arrays[0])?, numerics(&arrays[1])?);
    let quotients = left.iter().zip(&right).map(|pair| {
        let (Some(left), Some(right)) = pair else { return Ok(None) };
        let scale = left.scale.max(right.scale);
        let divisor = right.at(scale);
        if divisor == BigInt::ZERO {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        let quotient = i128::try_from(left.at(scale) / divisor).map_err(|_| too_large(&WHOLE))?;
        Ok(Some(quotient))
    });
    let quotients = quotients.collect::<Result<Decimal128Array, SqlError>>()?;
    let quotients = quotients.with_data_type(WHOLE);
    match quotients.validate_decimal_precision(PRECISION) {
        Ok(()) => Ok(Arc::new(quotients)),
        Err(_) => Err(too_large(&WHOLE)),
    }
}

fn min_scale(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let scales = numerics(&arrays[0])?.into_iter();
    let scales = scales.map(|it| it.and_then(|it| i32::try_from(it.shown_scale()).ok()));
    Ok(Arc::new(scales.collect::<Int32Array>()))
}

/// Counts the digits after the point in the texts of numbers.
fn scale(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let digits = |it: &str| it.split_once('.').map_or(0, |(_, digits)| digits.len());
    let texts = texts(&arrays[1])?;
    let scales = texts.iter().map(|it| it.and_then(|it| i32::try_from(digits(it)).ok()));
    Ok(Arc::new(scales.collect::<Int32Array>()))
}

/// The result's type is formatted without trailing zeros.
fn trim_scale(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let numbers = numerics(&arrays[0])?.into_iter();
    let numbers = numbers.map(|it| it.map(|it| it.result()).transpose());
    let numbers = numbers.collect::<Result<Decimal256Array, SqlError>>()?;
    Ok(Arc::new(numbers.with_data_type(result_type())))
}

fn bucket_type(types: &[DataType]) -> Option<DataType> {
    let is_number = |it: &DataType| it.is_numeric() || it.is_null();
    let is_count = |it: &DataType| matches!(it, DataType::Int16 | DataType::Int32 | DataType::Null);
    let [numbers @ .., count] = types else { return None };
    (numbers.iter().all(is_number) && is_count(count)).then_some(DataType::Int32)
}

fn width_bucket(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let [operands @ .., counts] = arrays else { return Err(does_not_exist("width_bucket", &[])) };
    let is_numeric = operands.iter().any(|it| it.data_type().is_decimal())
        && !operands.iter().any(|it| it.data_type().is_floating());
    if !is_numeric {
        let what = "width_bucket of double precision is not supported";
        return Err(SqlError::unsupported(what).with_hint("Cast to numeric."));
    }
    let columns = operands.iter().map(numerics).collect::<Result<Vec<_>, _>>()?;
    let counts = numbers(counts)?;
    let buckets = counts.iter().enumerate().map(|(row, count)| {
        let column = |index: usize| columns[index][row].as_ref();
        match (column(0), column(1), column(2), count) {
            (Some(value), Some(low), Some(high), Some(count)) => {
                bucket(value, (low, high), *count).map(Some)
            }
            _ => Ok(None),
        }
    });
    Ok(Arc::new(buckets.collect::<Result<Int32Array, SqlError>>()?))
}

/// Returns the bucket of a range that contains a value, or 0 before the range.
fn bucket(value: &Numeric, (low, high): (&Numeric, &Numeric), count: i64) -> Result<i32, SqlError> {
    let error = |what: &str| SqlError::new(SqlState("2201G"), what);
    if count <= 0 {
        return Err(error("count must be greater than zero"));
    }
    let scale = value.scale.max(low.scale).max(high.scale);
    let (value, low, high) = (value.at(scale), low.at(scale), high.at(scale));
    // For a descending range, negate all values.
    let (value, low, high) = match low <= high {
        true => (value, low, high),
        false => (-value, -low, -high),
    };
    if low == high {
        return Err(error("lower bound cannot equal upper bound"));
    }
    let found = match () {
        () if value < low => 0,
        () if value >= high => count + 1,
        () => i64::try_from((value - &low) * count / (high - &low)).unwrap_or(count) + 1,
    };
    i32::try_from(found).map_err(|_| too_large(&DataType::Int32))
}

/// The sign of an integer is double precision, as in PostgreSQL.
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
