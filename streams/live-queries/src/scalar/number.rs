//! Numbers: PostgreSQL's division and rounding of `numeric`, and parsing.

use rust_decimal::prelude::ToPrimitive;
use rust_decimal::{Decimal, RoundingStrategy};

use crate::error::RowError;
use crate::types::Type;

/// Decimal digits in one digit of PostgreSQL's base 10,000, and minimum significant digits of a
/// quotient.
const GROUP_DIGITS: i64 = 4;
const QUOTIENT_DIGITS_MIN: i64 = 16;

/// Divides with PostgreSQL's scale of the result, limited to 28 digits.
pub(crate) fn divide_numeric(left: Decimal, right: Decimal) -> Result<Decimal, RowError> {
    if right.is_zero() {
        return Err(RowError::DivisionByZero);
    }
    let quotient = left.checked_div(right).ok_or(RowError::OutOfRange(Type::Numeric))?;
    let scale = quotient_scale(left, right);
    let mut rounded = quotient.round_dp_with_strategy(
        scale.min(Decimal::MAX_SCALE),
        RoundingStrategy::MidpointAwayFromZero,
    );
    // Shows fewer trailing zeros than PostgreSQL if they do not fit.
    rounded.rescale(scale);
    Ok(rounded)
}

/// Selects the scale as PostgreSQL's `select_div_scale` does: by the leading base-10,000 digits.
fn quotient_scale(left: Decimal, right: Decimal) -> u32 {
    let (left_weight, left_group) = leading_group(left);
    let (right_weight, right_group) = leading_group(right);
    let mut weight = left_weight - right_weight;
    if left_group <= right_group {
        weight -= 1;
    }
    let scale = (QUOTIENT_DIGITS_MIN - weight * GROUP_DIGITS)
        .max(i64::from(left.scale()))
        .max(i64::from(right.scale()));
    scale.clamp(0, i64::from(Decimal::MAX_SCALE)).to_u32().unwrap_or(Decimal::MAX_SCALE)
}

/// Returns weight (0: units) and value of the first base-10,000 digit that is not zero.
fn leading_group(number: Decimal) -> (i64, u128) {
    let mut digits = number.mantissa().unsigned_abs();
    if digits == 0 {
        return (0, 0);
    }
    let scale = i64::from(number.scale());
    let digit_count = i64::from(digits.ilog10()) + 1;
    // Exponent of the first decimal digit, and weight of the base-10,000 digit that contains it.
    let exponent = digit_count - 1 - scale;
    let weight = exponent.div_euclid(GROUP_DIGITS);
    let shift = weight * GROUP_DIGITS + scale;
    let factor = 10_u128.pow(shift.unsigned_abs().to_u32().unwrap_or(0).min(30));
    digits = if shift >= 0 { digits / factor } else { digits.saturating_mul(factor) };
    (weight, digits)
}

/// Converts a double to numeric with 15 significant digits, as PostgreSQL does.
pub(super) fn float_to_numeric(number: f64) -> Result<Decimal, RowError> {
    if !number.is_finite() {
        return Err(RowError::OutOfRange(Type::Numeric));
    }
    let number = parse_numeric(&format!("{number:.14e}"))?;
    Ok(number.normalize())
}

pub(super) fn parse_float(text: &str) -> Result<f64, RowError> {
    let invalid = RowError::InvalidText(Type::Float8);
    let number: f64 = text.parse().map_err(|_| invalid)?;
    let names_no_number = text.bytes().any(|it| it.is_ascii_digit());
    let is_lost = number.is_infinite() || (number == 0.0 && has_nonzero_digit(text));
    match is_lost && names_no_number {
        true => Err(RowError::OutOfRange(Type::Float8)),
        false => Ok(number),
    }
}

fn has_nonzero_digit(text: &str) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    mantissa.bytes().any(|it| matches!(it, b'1'..=b'9'))
}

/// Parses `[+-]digits[.digits][e[+-]digits]` exactly. More than 28 digits are out of range.
pub(super) fn parse_numeric(text: &str) -> Result<Decimal, RowError> {
    let invalid = RowError::InvalidText(Type::Numeric);
    let too_long = RowError::OutOfRange(Type::Numeric);
    let (is_negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, exponent) = match digits.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().map_err(|_| invalid)?),
        None => (digits, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut all = whole.bytes().chain(fraction.bytes());
    if !all.all(|it| it.is_ascii_digit()) || whole.len() + fraction.len() == 0 {
        return Err(invalid);
    }
    let mut mantissa: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let next = mantissa.checked_mul(10).and_then(|it| it.checked_add(i128::from(digit - b'0')));
        mantissa = next.ok_or(too_long)?;
    }
    let fraction_count = i32::try_from(fraction.len()).map_err(|_| too_long)?;
    let mut scale = fraction_count.checked_sub(exponent).ok_or(too_long)?;
    while scale < 0 && mantissa != 0 {
        mantissa = mantissa.checked_mul(10).ok_or(too_long)?;
        scale += 1;
    }
    let mantissa = if is_negative { -mantissa } else { mantissa };
    let scale = u32::try_from(scale.max(0)).map_err(|_| too_long)?;
    Decimal::try_from_i128_with_scale(mantissa, scale).map_err(|_| too_long)
}

/// Formats a double as PostgreSQL does: with the fewest digits that preserve it, and an exponent
/// below 1e-4 and from 1e15 on.
pub(super) fn format_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    match exponent {
        -4..15 => format!("{number}"),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
    }
}
