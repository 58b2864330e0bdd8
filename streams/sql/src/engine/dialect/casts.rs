//! Casts to numeric types with PostgreSQL's semantics: they round, and accept texts with exponents.

use std::any::Any;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Decimal256Array, Int64Array, StringViewArray,
};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, i256,
};
use datafusion::arrow::util::display::FormatOptions;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::conversions::{strict, target};
use super::own::{Own, sql_name};
use crate::error::{SqlError, SqlState};
use crate::wire::PgType;

/// Names of the functions, which exist in PostgreSQL too.
pub(super) const INT2: &str = "int2";
pub(super) const INT4: &str = "int4";
pub(super) const INT8: &str = "int8";
pub(super) const NUMERIC: &str = "numeric";

/// Numeric type that holds any integer.
pub(super) const NUMERIC_OF_INTEGER: DataType = DataType::Decimal128(20, 0);

/// Precision and scale of an unconstrained `numeric`, since the engine's decimals have a fixed
/// scale.
const PRECISION: u8 = 38;
const SCALE: i8 = 10;

/// Cast function to a numeric type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CastTo {
    name: &'static str,
    to: DataType,
    signature: Signature,
}

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let types = [
        (INT2, DataType::Int16),
        (INT4, DataType::Int32),
        (INT8, DataType::Int64),
        (NUMERIC, DataType::Decimal128(PRECISION, SCALE)),
    ];
    types.into_iter().map(|(name, to)| function(name, to)).collect()
}

fn function(name: &'static str, to: DataType) -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(CastTo { name, to, signature }))
}

/// The digits that floats are exact to, which PostgreSQL casts to numeric.
fn exact_digits(floats: &ArrayRef) -> Result<StringViewArray> {
    if let Some(floats) = floats.as_primitive_opt::<Float32Type>() {
        return Ok(floats.iter().map(|it| it.map(|it| format!("{it:.5e}"))).collect());
    }
    let floats = cast(floats, &DataType::Float64)?;
    let floats = floats.as_primitive::<Float64Type>();
    Ok(floats.iter().map(|it| it.map(|it| format!("{it:.14e}"))).collect())
}

/// Name of the function that casts a float to a numeric with many digits, which is then rounded.
pub(super) const NUMERIC_OF_FLOAT: &str = "numeric_of_float";

/// Precision and scale of its result.
const EXACT_PRECISION: u8 = 76;
const EXACT_SCALE: i8 = 38;

/// Casts a float to a numeric. Digits beyond the scale of the result are cut off.
pub(super) fn numeric_of_float() -> Arc<ScalarUDF> {
    let type_of = |types: &[DataType]| {
        let is_float = types[0].is_floating();
        is_float.then_some(DataType::Decimal256(EXACT_PRECISION, EXACT_SCALE))
    };
    Own::udf(NUMERIC_OF_FLOAT, 1, type_of, |arrays| {
        let digits = exact_digits(&arrays[0])?;
        let numbers = digits.iter().map(|text| text.map(exact_number).transpose());
        let numbers = numbers.collect::<Result<Decimal256Array, SqlError>>()?;
        let numbers = numbers.with_precision_and_scale(EXACT_PRECISION, EXACT_SCALE);
        Ok(Arc::new(numbers.map_err(DataFusionError::from)?))
    })
}

/// Parses `-1.234e5` in units of the last digit of [`EXACT_SCALE`].
fn exact_number(text: &str) -> Result<i256, SqlError> {
    let refused = || {
        SqlError::unsupported(format!("numeric value {text:?} is not supported"))
            .with_hint("Cast it to double precision.")
    };
    let (mantissa, exponent) = text.split_once('e').ok_or_else(refused)?;
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = i256::from_string(&format!("{whole}{part}")).ok_or_else(refused)?;
    let exponent: i32 = exponent.parse().map_err(|_| refused())?;
    let shift = exponent - i32::try_from(part.len()).unwrap_or(0) + i32::from(EXACT_SCALE);
    let unit =
        i256::from_i128(10).checked_pow(shift.unsigned_abs().min(u32::from(EXACT_PRECISION)));
    let unit = unit.ok_or_else(refused)?;
    let number = if shift < 0 { digits.checked_div(unit) } else { digits.checked_mul(unit) };
    number.ok_or_else(refused)
}

/// Returns the function that casts to a numeric type, if one exists.
pub(in crate::engine) fn udf(to: &DataType) -> Option<Arc<ScalarUDF>> {
    let name = match to {
        DataType::Int16 => INT2,
        DataType::Int32 => INT4,
        DataType::Int64 => INT8,
        DataType::Decimal128(PRECISION, SCALE) => NUMERIC,
        _ => return None,
    };
    Some(function(name, to.clone()))
}

/// Converts a quoted literal to a numeric type. Returns `None` for other types.
pub(super) fn number_of(literal: &ScalarValue, to: &DataType) -> Result<Option<ColumnarValue>> {
    let signature = Signature::any(1, Volatility::Immutable);
    let (name, to) = match to {
        DataType::Int16 => (INT2, to.clone()),
        DataType::Int32 => (INT4, to.clone()),
        DataType::Int64 => (INT8, to.clone()),
        it if it.is_decimal() => (NUMERIC, DataType::Decimal128(PRECISION, SCALE)),
        _ => return Ok(None),
    };
    let number = CastTo { name, to, signature }.cast(&literal.to_array()?)?;
    Ok(Some(ColumnarValue::Scalar(ScalarValue::try_from_array(&number, 0)?)))
}

/// Returns the target type of a cast function.
pub(in crate::engine) fn cast_target(function: &ScalarUDF) -> Option<DataType> {
    let function = strict(function);
    let inner: &dyn Any = function.inner().as_ref();
    let number = inner.downcast_ref::<CastTo>().map(|it| it.to.clone());
    number.or_else(|| target(function))
}

impl ScalarUDFImpl for CastTo {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Exact numbers keep their precision and scale.
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match (self.name, types) {
            (NUMERIC, [of]) if of.is_decimal() => of.clone(),
            (NUMERIC, [of]) if of.is_integer() => NUMERIC_OF_INTEGER,
            _ => self.to.clone(),
        })
    }

    /// Drops the argument's metadata, such as that it is JSON.
    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<_> = args.arg_fields.iter().map(|it| it.data_type().clone()).collect();
        Ok(Arc::new(Field::new(self.name, self.return_type(&types)?, true)))
    }

    /// The engine's default has no data type, so nothing can be computed from it.
    fn evaluate_bounds(&self, operands: &[&Interval]) -> Result<Interval> {
        let types: Vec<_> = operands.iter().map(|it| it.data_type()).collect();
        Interval::make_unbounded(&self.return_type(&types)?)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_json = args.arg_fields.first().is_some_and(|it| PgType::of(it).is_json());
        let cast = |array: &ArrayRef| match is_json {
            true => self.number_of_json(array),
            false => self.cast(array),
        };
        match &args.args[0] {
            ColumnarValue::Array(array) => cast(array).map(ColumnarValue::Array),
            ColumnarValue::Scalar(scalar) => {
                let array = cast(&scalar.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
            }
        }
    }
}

impl CastTo {
    /// Converts JSON numbers, which are numeric whatever the target type.
    fn number_of_json(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let texts = cast(array, &DataType::Utf8View)?;
        let mut is_whole = true;
        for text in texts.as_string_view().iter().flatten() {
            let kind = match text.trim_start().as_bytes().first() {
                Some(b'"') => "string",
                Some(b'{') => "object",
                Some(b'[') => "array",
                Some(b't' | b'f') => "boolean",
                Some(b'n') => "null",
                _ => {
                    is_whole &= !text.contains(['.', 'e', 'E']);
                    continue;
                }
            };
            let what = format!("cannot cast jsonb {kind} to type {}", sql_name(&self.to));
            return Err(SqlError::new(SqlState::INVALID_PARAMETER, what).into_engine());
        }
        match is_whole {
            true => self.cast(&texts),
            false => self.cast(&self.numbers(&texts)?),
        }
    }

    fn cast(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let whole: ArrayRef = match (array.data_type(), self.to.is_integer()) {
            (DataType::Float16 | DataType::Float32 | DataType::Float64, true) => {
                let floats = cast(array, &DataType::Float64)?;
                let floats = floats.as_primitive::<Float64Type>();
                let rounded = floats.iter().map(|it| it.map(|it| self.whole_of(it)).transpose());
                Arc::new(rounded.collect::<Result<Int64Array>>()?)
            }
            (DataType::Decimal256(..), true) => {
                let rounded = cast_with_options(
                    array,
                    &DataType::Decimal256(76, 0),
                    &CastOptions { safe: false, format_options: FormatOptions::default() },
                )?;
                return self.cast(&cast(&rounded, &DataType::Decimal128(38, 0))?);
            }
            (DataType::Float16 | DataType::Float32 | DataType::Float64, false) => {
                return self.numbers(&(Arc::new(exact_digits(array)?) as ArrayRef));
            }
            (DataType::Decimal128(_, scale), true) => {
                let decimals = array.as_primitive::<Decimal128Type>();
                let unit = 10_i128.pow(u32::try_from(*scale).unwrap_or(0));
                let rounded =
                    decimals.iter().map(|it| it.map(|it| self.rounded(it, unit)).transpose());
                Arc::new(rounded.collect::<Result<Int64Array>>()?)
            }
            (DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View, false) => {
                return self.numbers(array);
            }
            _ => Arc::clone(array),
        };
        if self.name == NUMERIC
            && (whole.data_type().is_decimal() || whole.data_type().is_integer())
        {
            let to = self.return_type(&[whole.data_type().clone()])?;
            return Ok(cast(&whole, &to)?);
        }
        let options = CastOptions { safe: false, format_options: FormatOptions::default() };
        let is_number = whole.data_type().is_numeric();
        cast_with_options(&whole, &self.to, &options).map_err(|error| match is_number {
            true => self.out_of_range().into_engine(),
            false => error.into(),
        })
    }

    /// Rounds half to even.
    #[expect(clippy::cast_possible_truncation, reason = "the bounds are looked at before")]
    fn whole_of(&self, value: f64) -> Result<i64> {
        const END: f64 = 9_223_372_036_854_775_808.0;
        let rounded = value.round_ties_even();
        match (-END..END).contains(&rounded) {
            true => Ok(rounded as i64),
            false => Err(self.out_of_range().into_engine()),
        }
    }

    /// Rounds half away from zero.
    fn rounded(&self, value: i128, unit: i128) -> Result<i64> {
        let (whole, rest) = (value / unit, value % unit);
        let is_up = rest.abs() >= unit - rest.abs() && rest != 0;
        let rounded = whole + if is_up { rest.signum() } else { 0 };
        i64::try_from(rounded).map_err(|_| self.out_of_range().into_engine())
    }

    /// Parses texts as numbers.
    fn numbers(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let texts = cast(array, &DataType::Utf8View)?;
        let numbers = texts.as_string_view().iter().map(|text| {
            let Some(text) = text else { return Ok(None) };
            let word = text.trim().trim_start_matches(['-', '+']).to_ascii_lowercase();
            if matches!(word.as_str(), "nan" | "infinity" | "inf") {
                let what = format!("numeric value {word:?} is not supported");
                return Err(SqlError::unsupported(what)
                    .with_hint("Cast it to double precision.")
                    .into_engine());
            }
            match decimal_of(text.trim()) {
                Some((_, true)) => {
                    let what = format!(
                        "numeric supports at most {SCALE} digits after the decimal point, and \
                         {text:?} has more"
                    );
                    Err(SqlError::unsupported(what)
                        .with_hint("Cast it to double precision.")
                        .into_engine())
                }
                Some((number, false)) => Ok(Some(number)),
                None => {
                    let what = format!("invalid input syntax for type numeric: {text:?}");
                    Err(SqlError::new(SqlState::INVALID_TEXT, what).into_engine())
                }
            }
        });
        let numbers = numbers.collect::<Result<Decimal128Array>>()?;
        Ok(Arc::new(numbers.with_precision_and_scale(PRECISION, SCALE)?))
    }

    fn out_of_range(&self) -> SqlError {
        SqlError::new(SqlState::OUT_OF_RANGE, format!("{} out of range", sql_name(&self.to)))
    }
}

/// Parses a number in units of the last digit of `numeric`. Also returns whether further digits
/// were cut off. Returns `None` if the text is not a number, or has too many digits.
fn decimal_of(text: &str) -> Option<(i128, bool)> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i16>().ok()?),
        None => (text, 0),
    };
    let (is_negative, digits) = match mantissa.as_bytes().first()? {
        b'-' => (true, &mantissa[1..]),
        b'+' => (false, &mantissa[1..]),
        _ => (false, mantissa),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = || whole.bytes().chain(fraction.bytes());
    if all().next().is_none() || !all().all(|it| it.is_ascii_digit()) {
        return None;
    }
    // Number of leading digits to keep.
    let kept = i64::try_from(whole.len()).ok()? + i64::from(exponent) + i64::from(SCALE);
    let mut value = 0_i128;
    let mut at = 0_i64;
    let mut is_lost = false;
    for digit in all() {
        if at >= kept {
            is_lost |= digit != b'0';
            continue;
        }
        value = value.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
        at += 1;
    }
    if value != 0 {
        let zeros = u32::try_from(kept.max(at) - at).ok()?;
        value = value.checked_mul(10_i128.checked_pow(zeros)?)?;
    }
    let is_short = value < 10_i128.pow(u32::from(PRECISION));
    is_short.then_some((if is_negative { -value } else { value }, is_lost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_numbers_with_and_without_exponents() {
        const ONE: i128 = 10_000_000_000;
        for (text, expected) in [
            ("0", Some(0)),
            ("1.50000000000000", Some(ONE * 3 / 2)),
            ("-1.5", Some(-ONE * 3 / 2)),
            ("1e5", Some(ONE * 100_000)),
            ("1.25E-2", Some(ONE / 80)),
            (".5", Some(ONE / 2)),
            ("+5.", Some(ONE * 5)),
            ("0e300", Some(0)),
            ("1e28", None),
            ("9999999999999999999999999999", Some(9_999_999_999_999_999_999_999_999_999 * ONE)),
            ("", None),
            (".", None),
            ("1e", None),
            ("1 2", None),
            ("ä", None),
        ] {
            assert_eq!(decimal_of(text), expected.map(|it| (it, false)), "{text}");
        }
    }
}
