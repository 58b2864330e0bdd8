//! Arithmetic on times and quoted literals. As in PostgreSQL, the literal takes the type of the
//! other operand if such an operator exists, else that of the only operator that does.

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{ColumnarValue, Expr};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::conversions::{To, converted};
use super::interval_texts;
use super::planned::type_of;
use crate::error::{SqlError, SqlState};

/// Types the quoted literals in arithmetic on times.
#[derive(Debug)]
pub(in crate::engine) struct QuotedTimes;

impl ExprPlanner for QuotedTimes {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator::{Divide, Minus, Multiply, Plus};
        if !matches!(expr.op, Plus | Minus | Multiply | Divide) {
            return Ok(PlannerResult::Original(expr));
        }
        let (quoted, other) = match (&mut expr.left, &mut expr.right) {
            (left, right) if text_of(right).is_some() && text_of(left).is_none() => (right, left),
            (left, right)
                if text_of(left).is_some() && text_of(right).is_none() && expr.op != Divide =>
            {
                (left, right)
            }
            _ => return Ok(PlannerResult::Original(expr)),
        };
        if let Ok(of) = type_of(other, schema)
            && let Some(to) = type_beside(&expr.op, of)?
        {
            *quoted = as_value(text_of(quoted).unwrap_or_default(), &to)?;
        }
        Ok(PlannerResult::Original(expr))
    }
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), None) => Some(text),
        _ => None,
    }
}

/// Returns the type of a literal operand beside a time of type `of`.
fn type_beside(op: &BinaryOperator, of: DataType) -> Result<Option<DataType>> {
    use BinaryOperator::{Divide, Minus, Multiply, Plus};
    let interval = || Some(DataType::Interval(IntervalUnit::MonthDayNano));
    Ok(match (&of, op) {
        (DataType::Timestamp(..) | DataType::Interval(_) | DataType::Time64(_), Plus)
        | (DataType::Interval(_), Minus) => interval(),
        (DataType::Timestamp(..) | DataType::Date32 | DataType::Time64(_), Minus) => Some(of),
        (DataType::Interval(_), Multiply | Divide) => Some(DataType::Float64),
        (DataType::Date32, Plus) => {
            let what = "operator is not unique: date + unknown";
            let error = SqlError::new(SqlState("42725"), what);
            return Err(error
                .with_hint("Specify the literal's type, as in interval '1 day'.")
                .into_engine());
        }
        _ => None,
    })
}

/// Converts a text to a date/time type, or to double precision.
pub(super) fn as_value(text: &str, to: &DataType) -> Result<Expr> {
    let literal = || ScalarValue::from(text);
    let read = |to| match converted(to, &ColumnarValue::Scalar(literal()))? {
        ColumnarValue::Scalar(value) => Ok(value),
        ColumnarValue::Array(array) => ScalarValue::try_from_array(&array, 0),
    };
    let value = match to {
        DataType::Timestamp(_, None) => read(To::Timestamp)?,
        DataType::Timestamp(..) => read(To::Timestamptz)?,
        DataType::Float64 => read(To::Float8)?,
        DataType::Interval(_) => {
            let spelled = interval_texts::spelled(text).map_err(SqlError::into_engine)?;
            cast(spelled.as_deref().unwrap_or(text), to)?
        }
        _ => cast(text, to)?,
    };
    Ok(Expr::Literal(value, None))
}

fn cast(text: &str, to: &DataType) -> Result<ScalarValue> {
    ScalarValue::from(text).cast_to(to).map_err(|_| {
        let what = format!("invalid input syntax for a date, time or interval: {text:?}");
        SqlError::new(SqlState::INVALID_DATETIME, what).into_engine()
    })
}
