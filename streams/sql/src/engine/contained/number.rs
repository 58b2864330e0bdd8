//! Byte patterns of numbers, implied by comparisons.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::Between;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, Operator, TryCast};
use live_queries::{ContainedNumber, NumberType};

use super::field::field_path;
use crate::engine::columns::bytes_of;
use crate::engine::dialect::cast_target;

/// Returns the path of a field, and the pattern in each value for which a comparison of the field
/// with a number holds. Returns `None` for other filters, or if JSON has short escapes for
/// characters of the key.
pub(super) fn contained_number(filter: &Expr) -> Option<(&[Expr], ContainedNumber)> {
    let (field, low, high) = match filter {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match literal_of(right) {
            Some(literal) => compared(left, *op, literal)?,
            None => compared(right, op.swap()?, literal_of(left)?)?,
        },
        Expr::Between(Between { expr, negated: false, low, high }) => {
            (&**expr, literal_of(low)?.0, literal_of(high)?.1)
        }
        _ => return None,
    };
    let (path, number_type) = number_field(field)?;
    let Expr::Literal(key, _) = path.last()? else { return None };
    let key = String::from_utf8(bytes_of(key)?).ok()?;
    Some((path, ContainedNumber::new(&key, number_type, (low, high))?))
}

/// Returns the field of a comparison and the range of numbers for which it can hold. The bounds are
/// inclusive integers, and the range can be wider than the comparison.
fn compared(field: &Expr, operator: Operator, around: (i64, i64)) -> Option<Compared<'_>> {
    let (floor, ceiling) = around;
    match operator {
        Operator::Eq => Some((field, floor, ceiling)),
        Operator::Gt | Operator::GtEq => Some((field, floor, i64::MAX)),
        Operator::Lt | Operator::LtEq => Some((field, i64::MIN, ceiling)),
        _ => None,
    }
}

type Compared<'a> = (&'a Expr, i64, i64);

/// Returns the integers around a literal.
fn literal_of(expr: &Expr) -> Option<(i64, i64)> {
    let Expr::Literal(value, _) = expr else { return None };
    let whole = |it: i64| Some((it, it));
    match *value {
        ScalarValue::Int16(Some(it)) => whole(it.into()),
        ScalarValue::Int32(Some(it)) => whole(it.into()),
        ScalarValue::Int64(Some(it)) => whole(it),
        ScalarValue::Decimal128(Some(it), _, scale) => {
            let unit = 10_i128.checked_pow(u32::try_from(scale).ok()?)?;
            let floor = i64::try_from(it.div_euclid(unit)).ok()?;
            let is_whole = it.rem_euclid(unit) == 0;
            Some((floor, floor.checked_add(i64::from(!is_whole))?))
        }
        ScalarValue::Float64(Some(it)) => ContainedNumber::whole_around(it),
        _ => None,
    }
}

/// Returns the path of a field that is converted to a number, and the type of the number.
fn number_field(expr: &Expr) -> Option<(&[Expr], NumberType)> {
    let (inner, target) = match expr {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            (&**expr, field.data_type().clone())
        }
        Expr::ScalarFunction(call) => (call.args.first()?, cast_target(&call.func)?),
        _ => return None,
    };
    let number_type = number_type(&target)?;
    match field_path(inner) {
        Some(path) => Some((path, number_type)),
        // A cast of a cast, to a type that holds all numbers of this pattern.
        None if number_type.has_fractions() || target == DataType::Int64 => number_field(inner),
        None => None,
    }
}

fn number_type(target: &DataType) -> Option<NumberType> {
    match target {
        DataType::Int16 => Some(NumberType::INT2),
        DataType::Int32 => Some(NumberType::INT4),
        DataType::Int64 => Some(NumberType::INT8),
        // With a larger scale, numbers that match may overflow, and this error must not be filtered
        // out.
        DataType::Float64 | DataType::Decimal128(38, 0..=20) => Some(NumberType::FRACTIONS),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{cast, col, lit};

    use super::*;
    use crate::engine::json::field;

    fn qty(to: DataType) -> Expr {
        cast(field(col("value"), vec![lit("qty")], false), to)
    }

    fn shown(filter: &Expr) -> Option<String> {
        contained_number(filter).map(|(_, it)| it.to_string())
    }

    #[test]
    fn comparisons_with_numbers_tell_what_stands_behind_the_key() {
        let whole = || qty(DataType::Int64);
        let decimal = ScalarValue::Decimal128(Some(-15), 38, 1);
        for (filter, expected) in [
            (whole().gt_eq(lit(5_i64)), Some("\"qty\":5..")),
            (lit(5_i64).gt(whole()), Some("\"qty\":..5")),
            (whole().eq(lit(5_i64)), Some("\"qty\":5..5")),
            (whole().between(lit(1_i64), lit(9_i64)), Some("\"qty\":1..9")),
            (qty(DataType::Float64).lt(lit(2.5)), Some("\"qty\":..3")),
            (qty(DataType::Decimal128(38, 10)).gt(lit(decimal)), Some("\"qty\":-2..")),
            (cast(qty(DataType::Int32), DataType::Int64).lt(lit(7_i64)), Some("\"qty\":..7")),
            (cast(whole(), DataType::Int32).lt(lit(7_i32)), None),
            (whole().not_eq(lit(5_i64)), None),
            (qty(DataType::Decimal128(38, 30)).lt(lit(5_i64)), None),
            (whole().not_between(lit(1_i64), lit(9_i64)), None),
            (qty(DataType::Utf8View).gt(lit("5")), None),
            (col("offset").gt(lit(5_i64)), None),
            (
                cast(field(col("value"), vec![lit("a/b")], false), DataType::Int64).lt(lit(1_i64)),
                None,
            ),
        ] {
            assert_eq!(shown(&filter).as_deref(), expected, "{filter}");
        }
    }
}
