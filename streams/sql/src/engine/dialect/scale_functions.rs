//! Functions that compute the scale of a numeric as PostgreSQL does, and that show a numeric with a
//! given scale.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, StringArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::functions::core::{get_field, named_struct};
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit,
};

use super::numerics::Numeric;
use super::own::{Own, numbers, texts};
use super::quotients::{leading_groups, quotient_type, quotients_of_scales};
use super::real_functions::{computed, numerics_of};
use crate::error::SqlError;
use crate::wire::{PgType, described_field};

/// Minimum number of significant digits of a quotient, and digits in one of PostgreSQL's base-10000
/// digits.
const QUOTIENT_DIGITS_MIN: i64 = 16;
const GROUP_DIGITS: i64 = 4;

/// Name of the division whose third and fourth argument are the scales of the operands.
pub(super) const QUOTIENT: &str = "quotient_of_scales";

/// Function of a field of a struct, and the fields of a value that is packed with its scale.
pub(super) const PACKED_FIELD: &str = "get_field";
pub(super) const PACKED_VALUE: &str = "value";
pub(super) const PACKED_SCALE: &str = "scale";

/// Prefix of the names of columns with such values.
pub(super) const PACKED: &str = "\0packed ";

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

/// The number of a numeric's digits after the point, without trailing zeros.
pub(super) fn of_digits() -> Arc<ScalarUDF> {
    Own::udf("scale_of_digits", 1, int, |arrays| {
        let scale = |it: &Numeric| i32::try_from(it.shown_scale()).ok();
        let scales = numerics_of(&arrays[0])?;
        let scales = scales.iter().map(|it| it.as_ref().and_then(scale));
        Ok(Arc::new(scales.collect::<Int32Array>()))
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
        let operand = |index: usize| leading_groups(&arrays[index]).map_err(SqlError::from);
        let (left, right) = (operand(0)?, operand(1)?);
        let (left_scales, right_scales) = (scales(&arrays[2])?, scales(&arrays[3])?);
        let found = (0..left.len()).map(|row| {
            let (left, right) = (left[row]?, right[row]?);
            let (one, other) = (left_scales[row]?, right_scales[row]?);
            i32::try_from(quotient_scale(left, right).max(one).max(other).max(0)).ok()
        });
        Ok(Arc::new(found.collect::<Int32Array>()))
    })
}

/// Same as `select_div_scale` of PostgreSQL, without the scales of the operands.
fn quotient_scale(left: (i64, i64), right: (i64, i64)) -> i64 {
    let ((left_weight, left_group), (right_weight, right_group)) = (left, right);
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

/// Division of numerics with given scales.
pub(super) fn quotient() -> Arc<ScalarUDF> {
    Own::udf(
        QUOTIENT,
        4,
        |_| Some(quotient_type()),
        |arrays| {
            let scales = (scales(&arrays[2])?, scales(&arrays[3])?);
            quotients_of_scales(&arrays[0], &arrays[1], &scales).map_err(SqlError::from)
        },
    )
}

/// A value with its scale as one value.
pub(super) fn packed(value: Expr, scale: Expr) -> Expr {
    named_struct().call(vec![lit(PACKED_VALUE), value, lit(PACKED_SCALE), scale])
}

pub(super) fn packed_field(packed: Expr, name: &str) -> Expr {
    get_field().call(vec![packed, lit(name)])
}

/// Returns whether an expression is a column with packed values.
pub(super) fn is_packed(expr: &Expr) -> bool {
    matches!(expr, Expr::Column(column) if column.name.starts_with(PACKED))
}

/// The texts of the numerics of an array with their scales, or with one scale, described to clients
/// as an array of numerics.
pub(super) fn shown_list() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(ShownList { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ShownList {
    signature: Signature,
}

impl ShownList {
    fn element() -> FieldRef {
        Field::new_list_field(DataType::Utf8, true).into()
    }
}

impl ScalarUDFImpl for ShownList {
    fn name(&self) -> &'static str {
        "shown_with_scales"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(Self::element()))
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = Field::new(self.name(), DataType::List(Self::element()), true);
        Ok(described_field(&field, PgType::NUMERICS, -1).into())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        make_scalar_function(lists_with_scales, Vec::new())(&args.args)
    }
}

fn lists_with_scales(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let lists = arrays[0].as_list::<i32>();
    let scales = arrays[1].as_list_opt::<i32>();
    let mut texts = Vec::new();
    let mut lengths = Vec::with_capacity(lists.len());
    for row in 0..lists.len() {
        if lists.is_null(row) {
            lengths.push(0);
            continue;
        }
        let values = lists.value(row);
        let of_row = match scales {
            Some(scales) => scales.value(row),
            None => arrays[1].slice(row, 1),
        };
        let of_row = numbers(&of_row).map_err(SqlError::into_engine)?;
        let scale_of = |index: usize| match scales {
            Some(_) => of_row.get(index).copied().flatten(),
            None => of_row[0],
        };
        for (index, value) in numerics_of(&values)?.into_iter().enumerate() {
            texts.push(value.map(|it| text_with_scale(&it, scale_of(index))));
        }
        lengths.push(values.len());
    }
    let offsets = OffsetBuffer::from_lengths(lengths);
    let texts = Arc::new(texts.into_iter().collect::<StringArray>());
    let nulls = lists.nulls().cloned();
    Ok(Arc::new(ListArray::try_new(ShownList::element(), offsets, texts, nulls)?))
}

fn text_with_scale(value: &Numeric, scale: Option<i64>) -> String {
    match scale.and_then(|it| u32::try_from(it).ok()) {
        Some(scale) if scale >= value.scale => value.text(scale),
        scale => value.text(scale.unwrap_or(0).max(value.shown_scale())),
    }
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
    let shown = values.iter().zip(scales);
    let shown = shown.map(|(value, scale)| value.as_ref().map(|it| text_with_scale(it, scale)));
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
