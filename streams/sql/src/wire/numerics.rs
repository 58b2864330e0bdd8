//! Numerics that clients bind. Each value keeps its digits and its scale, as a literal does.

use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, i256,
};
use datafusion::common::ScalarValue;

use crate::error::{SqlError, SqlState};

/// Maximum number of zeros from expanding an exponent.
const ZERO_COUNT_MAX: i64 = 1_000;

/// Reads a numeric in PostgreSQL's syntax.
///
/// # Errors
/// It is not a number, or is not supported: NaN, an infinity, or a number with more digits than
/// the engine's decimals have.
pub(super) fn numeric_of(text: &str) -> Result<ScalarValue, SqlError> {
    let trimmed = text.trim_ascii();
    let word = trimmed.trim_start_matches(['-', '+']).to_ascii_lowercase();
    if matches!(word.as_str(), "nan" | "infinity" | "inf") {
        let what = format!("numeric value {word:?} is not supported");
        return Err(SqlError::unsupported(what).with_hint("Use double precision."));
    }
    let Some((digits, scale)) = digits_of(trimmed) else {
        let what = format!("invalid input syntax for type numeric: {text:?}");
        return Err(SqlError::new(SqlState::INVALID_TEXT, what));
    };
    let count = digits.trim_start_matches('-').len();
    numeric(&digits, count, scale).ok_or_else(too_long)
}

/// Returns a numeric from its digits, of which `scale` follow the point.
fn numeric(digits: &str, count: usize, scale: i64) -> Option<ScalarValue> {
    let precision = u8::try_from(scale.max(i64::try_from(count).ok()?).max(1)).ok()?;
    let scale = i8::try_from(scale).ok()?;
    Some(match precision {
        it if it <= DECIMAL128_MAX_PRECISION => {
            ScalarValue::Decimal128(Some(digits.parse().ok()?), precision, scale)
        }
        it if it <= DECIMAL256_MAX_PRECISION => {
            ScalarValue::Decimal256(Some(i256::from_string(digits)?), precision, scale)
        }
        _ => return None,
    })
}

fn too_long() -> SqlError {
    let what = format!("numeric parameters of more than {DECIMAL256_MAX_PRECISION} digits");
    SqlError::unsupported(format!("{what} are not supported"))
}

/// Splits a number into its digits without leading zeros, with a sign, and its scale. Returns
/// `None` if the text is not a number.
fn digits_of(text: &str) -> Option<(String, i64)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let (sign, unsigned) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let scale = i64::try_from(fraction.len()).ok()?.saturating_sub(exponent);
    if scale < 0 {
        let count = scale.saturating_neg().min(ZERO_COUNT_MAX);
        digits.push_str(&"0".repeat(usize::try_from(count).ok()?));
    }
    let digits = match digits.trim_start_matches('0') {
        "" => "0".to_owned(),
        digits => format!("{sign}{digits}"),
    };
    Some((digits, scale.max(0)))
}

/// Returns a list of numerics, of a type that holds all of them. If their scales differ, the type
/// is one whose scale is not that of its values.
pub(super) fn list_of_numerics(elements: &[ScalarValue]) -> Result<ScalarValue, SqlError> {
    let types: Vec<_> = elements.iter().filter(|it| !it.is_null()).map(size_of).collect();
    let scale = types.iter().map(|it| it.1).max().unwrap_or(0);
    let whole = types.iter().map(|(precision, scale)| precision - scale).max().unwrap_or(1);
    let is_mixed = types.iter().any(|it| it.1 != scale);
    let least = if is_mixed { DECIMAL128_MAX_PRECISION } else { 1 };
    let precision = (whole + scale).max(least);
    let of = match precision {
        it if it <= DECIMAL128_MAX_PRECISION => {
            DataType::Decimal128(precision, scale.cast_signed())
        }
        it if it <= DECIMAL256_MAX_PRECISION => {
            DataType::Decimal256(precision, scale.cast_signed())
        }
        _ => return Err(too_long()),
    };
    let elements = elements.iter().map(|it| match it.is_null() {
        true => ScalarValue::try_from(&of),
        false => it.cast_to(&of),
    });
    let elements = elements.collect::<Result<Vec<_>, _>>()?;
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&elements, &of)))
}

/// Returns precision and scale of a numeric.
fn size_of(value: &ScalarValue) -> (u8, u8) {
    match value {
        ScalarValue::Decimal128(_, precision, scale)
        | ScalarValue::Decimal256(_, precision, scale) => (*precision, scale.unsigned_abs()),
        _ => (1, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numerics_keep_their_digits_and_scales() {
        let long = "1234567890123456789012345678901234567890.50";
        for (text, expected) in [
            ("1", "1"),
            (" +1.50 ", "1.50"),
            ("-.5", "-0.5"),
            ("5.", "5"),
            ("1e3", "1000"),
            ("1.50E1", "15.0"),
            ("1.5e-7", "0.00000015"),
            ("-0", "0"),
            ("-0.00", "0.00"),
            ("007.0", "7.0"),
            ("0e300", "0"),
            ("0.12345678901234567890123456789", "0.12345678901234567890123456789"),
            (long, long),
        ] {
            let found = numeric_of(text).expect(text);
            assert_eq!(found.cast_to(&DataType::Utf8).expect(text).to_string(), expected, "{text}");
        }
        for (text, state) in [
            ("", SqlState::INVALID_TEXT),
            (".", SqlState::INVALID_TEXT),
            ("1_0", SqlState::INVALID_TEXT),
            ("1e", SqlState::INVALID_TEXT),
            ("+-1", SqlState::INVALID_TEXT),
            ("0x10", SqlState::INVALID_TEXT),
            ("NaN", SqlState::NOT_SUPPORTED),
            ("-Infinity", SqlState::NOT_SUPPORTED),
            ("1e77", SqlState::NOT_SUPPORTED),
            ("1e-77", SqlState::NOT_SUPPORTED),
        ] {
            assert_eq!(numeric_of(text).expect_err(text).state, state, "{text}");
        }
    }
}
