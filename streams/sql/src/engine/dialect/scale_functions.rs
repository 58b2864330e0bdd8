//! Functions that compute the scale of a numeric as PostgreSQL does, and that show a numeric with a
//! given scale.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::numerics::Numeric;
use super::own::{Own, numbers, texts};
use super::real_functions::{computed, numerics_of};
use crate::error::SqlError;
use crate::wire::{PgType, described_field};

/// Minimum number of significant digits of a quotient, and digits in one of PostgreSQL's base-10000
/// digits.
const QUOTIENT_DIGITS_MIN: i64 = 16;
const GROUP_DIGITS: i64 = 4;

fn int(_: &[DataType]) -> Option<DataType> {
    Some(DataType::Int32)
}

fn scales(array: &ArrayRef) -> Result<Vec<Option<i64>>, SqlError> {
    numbers(array)
}

fn of_two(arrays: &[ArrayRef], compute: fn(i64, i64) -> i64) -> Result<ArrayRef, SqlError> {
    let (one, other) = (scales(&arrays[0])?, scales(&arrays[1])?);
    let found = one.iter().zip(&other).map(|pair| match pair {
        (Some(one), Some(other)) => i32::try_from(compute(*one, *other)).ok(),
        _ => None,
    });
    Ok(Arc::new(found.collect::<Int32Array>()))
}

/// The larger of two scales.
pub(super) fn larger() -> Arc<ScalarUDF> {
    Own::udf("larger_scale", 2, int, |it| of_two(it, i64::max))
}

/// The sum of two scales.
pub(super) fn sum() -> Arc<ScalarUDF> {
    Own::udf("sum_of_scales", 2, int, |it| of_two(it, |one, other| one + other))
}

/// The scale of a numeric that is parsed from a text.
pub(super) fn of_text() -> Arc<ScalarUDF> {
    Own::udf("scale_of_text", 1, int, |arrays| {
        let scales =
            texts(&arrays[0])?.iter().map(|it| it.and_then(text_scale)).collect::<Int32Array>();
        Ok(Arc::new(scales))
    })
}

fn text_scale(text: &str) -> Option<i32> {
    let text = text.trim();
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let fraction = mantissa.split_once('.').map_or("", |(_, fraction)| fraction);
    let exponent: i32 = exponent.parse().ok()?;
    Some((i32::try_from(fraction.len()).ok()? - exponent).max(0))
}

/// The scale of a quotient. The arguments are the operands and their scales.
pub(super) fn of_quotient() -> Arc<ScalarUDF> {
    Own::udf("scale_of_quotient", 4, int, |arrays| {
        let operand = |index: usize| numerics_of(&arrays[index]).map_err(SqlError::from);
        let (left, right) = (operand(0)?, operand(1)?);
        let (left_scales, right_scales) = (scales(&arrays[2])?, scales(&arrays[3])?);
        let found = (0..left.len()).map(|row| {
            let (left, right) = (left[row].as_ref()?, right[row].as_ref()?);
            let (one, other) = (left_scales[row]?, right_scales[row]?);
            i32::try_from(quotient_scale(left, right).max(one).max(other).max(0)).ok()
        });
        Ok(Arc::new(found.collect::<Int32Array>()))
    })
}

/// Same as `select_div_scale` of PostgreSQL, without the scales of the operands.
fn quotient_scale(left: &Numeric, right: &Numeric) -> i64 {
    let ((left_weight, left_group), (right_weight, right_group)) = (left.lead(), right.lead());
    let weight = left_weight - right_weight - i64::from(left_group <= right_group);
    QUOTIENT_DIGITS_MIN - weight * GROUP_DIGITS
}

/// The scale of the result of a square root, power, exponential or logarithm.
pub(super) fn of_call(name: &str, count: usize) -> Option<Arc<ScalarUDF>> {
    type Compute = fn(&[ArrayRef]) -> Result<ArrayRef, SqlError>;
    let named: [(&'static str, &str, Compute); 6] = [
        ("scale_of_exp", "exp", |it| of_results("exp", it)),
        ("scale_of_ln", "ln", |it| of_results("ln", it)),
        ("scale_of_log", "log", |it| of_results("log", it)),
        ("scale_of_log10", "log10", |it| of_results("log10", it)),
        ("scale_of_power", "power", |it| of_results("power", it)),
        ("scale_of_sqrt", "sqrt", |it| of_results("sqrt", it)),
    ];
    let (function, _, compute) = named.into_iter().find(|(_, of, _)| *of == name)?;
    Some(Own::udf(function, count, int, compute))
}

fn of_results(name: &str, arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let results = computed(name, arrays)?.into_iter();
    let scales = results.map(|it| it.and_then(|it| i32::try_from(it.scale).ok()));
    Ok(Arc::new(scales.collect::<Int32Array>()))
}

/// The text of a numeric with a scale, described to clients as a numeric.
pub(super) fn shown() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Shown { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Shown {
    signature: Signature,
}

impl ScalarUDFImpl for Shown {
    fn name(&self) -> &'static str {
        "shown_with_scale"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = Field::new(self.name(), DataType::Utf8, true);
        Ok(described_field(&field, PgType::NUMERIC.oid, -1).into())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        make_scalar_function(with_scales, Vec::new())(&args.args)
    }
}

fn with_scales(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let values = numerics_of(&arrays[0])?;
    let scales = scales(&arrays[1]).map_err(SqlError::into_engine)?;
    let shown = values.iter().zip(scales).map(|(value, scale)| {
        let scale = scale.and_then(|it| u32::try_from(it).ok());
        value.as_ref().map(|it| it.text(scale.unwrap_or_else(|| it.shown_scale())))
    });
    Ok(Arc::new(shown.collect::<StringArray>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numerics_of_texts_have_the_digits_that_are_written() {
        for (text, scale) in [("1", 0), (" 1.50 ", 2), ("1.5e1", 0), ("15e-3", 3), ("-.5", 1)] {
            assert_eq!(text_scale(text), Some(scale), "{text}");
        }
    }
}
