//! Division of numerics, rounded as in PostgreSQL.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal256Array, Float64Array, Int64Array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal256Type, Float64Type, Int64Type, i256};
use datafusion::arrow::error::ArrowError;
use datafusion::common::Result;

use super::casts::NUMERIC_OF_INTEGER;
use crate::error::SqlError;

/// Scale of quotients, and minimum number of significant digits. Quotients with more fractional
/// digits are out of range.
const QUOTIENT_SCALE: i8 = 30;
const QUOTIENT_DIGITS_MIN: i64 = 16;

/// Decimal digits in one of PostgreSQL's base-10000 digits.
const GROUP_DIGITS: i64 = 4;

pub(super) const fn quotient_type() -> DataType {
    DataType::Decimal256(76, QUOTIENT_SCALE)
}

/// Divides each sum by its count. A count of zero results in NULL.
pub(super) fn averages(sums: &ArrayRef, counts: &ArrayRef) -> Result<ArrayRef> {
    let counts = cast(counts, &DataType::Int64)?;
    let counts = counts.as_primitive::<Int64Type>();
    if sums.data_type().is_floating() {
        let sums = cast(sums, &DataType::Float64)?;
        let pairs = sums.as_primitive::<Float64Type>().iter().zip(counts);
        #[expect(clippy::cast_precision_loss, reason = "rows are fewer than that")]
        let averages = pairs.map(|(sum, count)| match (sum, count) {
            (Some(sum), Some(count)) if count > 0 => Some(sum / count as f64),
            _ => None,
        });
        return Ok(Arc::new(averages.collect::<Float64Array>()));
    }
    let sums = match sums.data_type().is_decimal() {
        true => Arc::clone(sums),
        false => cast(sums, &DataType::Decimal128(38, 0))?,
    };
    let counts: Int64Array = counts.iter().map(|it| it.filter(|it| *it > 0)).collect();
    let counts = cast(&counts, &NUMERIC_OF_INTEGER)?;
    quotients(&sums, &counts)
}

/// Divides numerics, rounded as in PostgreSQL.
pub(super) fn quotients(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef> {
    let is_quotient = |it: &ArrayRef| *it.data_type() == quotient_type();
    let digits = (digits_of(is_quotient(left)), digits_of(is_quotient(right)));
    divided(left, right, |_, left, right| (digits.0(left), digits.1(right)))
}

/// Divides numerics with these scales. That of a value without one follows from its digits.
pub(super) fn quotients_of_scales(
    left: &ArrayRef,
    right: &ArrayRef,
    (left_scales, right_scales): &(Vec<Option<i64>>, Vec<Option<i64>>),
) -> Result<ArrayRef> {
    let of = |scale: Option<i64>, value| scale.unwrap_or_else(|| shown_scale(value));
    divided(left, right, |row, left, right| {
        (of(left_scales[row], left), of(right_scales[row], right))
    })
}

/// Divides. `digits` returns the numbers of fractional digits that the operands of a row have in
/// PostgreSQL.
fn divided(
    left: &ArrayRef,
    right: &ArrayRef,
    digits: impl Fn(usize, (i256, i8), (i256, i8)) -> (i64, i64),
) -> Result<ArrayRef> {
    let (left_scale, right_scale) = (scale_of(left), scale_of(right));
    let wide = |it: &ArrayRef, scale: i8| cast(it, &DataType::Decimal256(76, scale));
    let (left, right) = (wide(left, left_scale)?, wide(right, right_scale)?);
    let pairs = left.as_primitive::<Decimal256Type>().iter();
    let pairs = pairs.zip(right.as_primitive::<Decimal256Type>());
    let found = pairs.enumerate().map(|(row, pair)| match pair {
        (Some(left), Some(right)) => {
            let (left, right) = ((left, left_scale), (right, right_scale));
            quotient(left, right, digits(row, left, right)).map(Some)
        }
        _ => Ok(None),
    });
    let found = found.collect::<Result<Decimal256Array>>()?;
    Ok(Arc::new(found.with_precision_and_scale(76, QUOTIENT_SCALE)?))
}

fn scale_of(array: &ArrayRef) -> i8 {
    match array.data_type() {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}

/// Returns the number of fractional digits that a value has in PostgreSQL.
type Digits = fn((i256, i8)) -> i64;

fn digits_of(is_quotient: bool) -> Digits {
    match is_quotient {
        true => quotient_scale,
        false => shown_scale,
    }
}

fn quotient(
    left: (i256, i8),
    right: (i256, i8),
    (left_digits, right_digits): (i64, i64),
) -> Result<i256> {
    let range = || too_many_digits().into_engine();
    if right.0 == i256::ZERO {
        return Err(ArrowError::DivideByZero.into());
    }
    if left.0 == i256::ZERO {
        return Ok(i256::ZERO);
    }
    let ((left_weight, left_group), (right_weight, right_group)) =
        (leading_group(left), leading_group(right));
    let weight = left_weight - right_weight - i64::from(left_group <= right_group);
    // Same as `select_div_scale` of PostgreSQL.
    let scale =
        (QUOTIENT_DIGITS_MIN - weight * GROUP_DIGITS).max(left_digits).max(right_digits).max(0);
    if scale > i64::from(QUOTIENT_SCALE) {
        let what = format!("division with {scale} digits after the decimal point is not supported");
        return Err(SqlError::unsupported(what).into_engine());
    }
    let ten = |power: i64| {
        let power = u32::try_from(power).map_err(|_| range())?;
        i256::from(10).checked_pow(power).ok_or_else(range)
    };
    // Power of ten by which the dividend must be scaled for the result's units.
    let shift = scale - i64::from(left.1) + i64::from(right.1);
    let (dividend, divisor) = match shift >= 0 {
        true => (left.0.checked_mul(ten(shift)?).ok_or_else(range)?, right.0),
        false => (left.0, right.0.checked_mul(ten(-shift)?).ok_or_else(range)?),
    };
    let (whole, rest) = (dividend / divisor, dividend % divisor);
    let (rest, half) = (rest.wrapping_abs(), divisor.wrapping_abs());
    let is_up = rest >= half - rest;
    let sign = if (left.0 < i256::ZERO) == (right.0 < i256::ZERO) { 1 } else { -1 };
    let rounded = if is_up { whole + i256::from(sign) } else { whole };
    let found = rounded.checked_mul(ten(i64::from(QUOTIENT_SCALE) - scale)?).ok_or_else(range)?;
    if found.wrapping_abs() >= ten(76)? { Err(range()) } else { Ok(found) }
}

/// Error: too many digits. PostgreSQL supports up to 131,072.
pub(super) fn too_many_digits() -> SqlError {
    SqlError::unsupported(
        "numeric with more than 38 digits, or 76 for a division, is not supported",
    )
}

/// Returns the number of fractional digits without trailing zeros.
fn shown_scale((value, scale): (i256, i8)) -> i64 {
    let digits = value.to_string();
    let zeros = digits.len() - digits.trim_end_matches('0').len();
    i64::from(scale) - i64::try_from(zeros).unwrap_or(0)
}

/// Returns the scale of a previous quotient in PostgreSQL, including trailing zeros.
fn quotient_scale(value: (i256, i8)) -> i64 {
    let (weight, _) = leading_group(value);
    let scale = (QUOTIENT_DIGITS_MIN - weight * GROUP_DIGITS).min(i64::from(QUOTIENT_SCALE));
    scale.max(shown_scale(value))
}

/// Returns the exponent (0: units) and the value of the first base-10000 digit of each number. Both
/// are 0 for zero.
pub(super) fn leading_groups(array: &ArrayRef) -> Result<Vec<Option<(i64, i64)>>> {
    let scale = scale_of(array);
    let wide = cast(array, &DataType::Decimal256(76, scale))?;
    let values = wide.as_primitive::<Decimal256Type>().iter();
    let group = |value| if value == i256::ZERO { (0, 0) } else { leading_group((value, scale)) };
    Ok(values.map(|it| it.map(group)).collect())
}

/// Returns the exponent (0: units) and value of the first base-10000 digit that is not zero.
fn leading_group((value, scale): (i256, i8)) -> (i64, i64) {
    let magnitude = value.wrapping_abs();
    let short = magnitude.to_i128().and_then(|it| u128::try_from(it).ok());
    let count = match short {
        Some(short) => i64::from(short.checked_ilog10().unwrap_or(0)) + 1,
        None => i64::try_from(magnitude.to_string().len()).unwrap_or(0),
    };
    let exponent = count - 1 - i64::from(scale);
    let weight = exponent.div_euclid(GROUP_DIGITS);
    // Number of decimal digits in it, including zeros beyond the last digit.
    let taken = exponent - weight * GROUP_DIGITS + 1;
    let ten = |power: i64| 10_u128.pow(u32::try_from(power).unwrap_or(0));
    let group = match short {
        Some(short) if count >= taken => short / ten(count - taken),
        Some(short) => short * ten(taken - count),
        None => {
            let taken = usize::try_from(taken).unwrap_or(1);
            magnitude.to_string()[..taken].parse().unwrap_or(0)
        }
    };
    (weight, i64::try_from(group).unwrap_or(0))
}
