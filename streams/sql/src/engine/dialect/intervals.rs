//! Comparison of intervals as in PostgreSQL: a month has 30 days, and a day 24 hours. Rejects
//! comparisons that the engine would do part by part and that are not rewritten here, and texts
//! that it would take for arrays of one element.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    ColumnarValue, Distinct, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::calls::Call;
use super::interval_aggregates::extreme;
use super::interval_functions::{interval_over, length_of};
use super::interval_texts::read_text;
use crate::error::SqlError;

/// Functions that compare their arguments.
const COMPARING: &[&str] =
    &["greatest", "least", "nullif", "min", "max", "array_agg", "first_value", "last_value"];

static LENGTH: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Length { signature }))
});

/// Rejects operations that the engine would do by the parts of intervals.
pub(super) fn check_rows(plan: &LogicalPlan, schema: &DFSchema) -> Result<()> {
    match plan {
        LogicalPlan::Distinct(Distinct::All(input)) => refuse_columns(input.schema(), "DISTINCT"),
        LogicalPlan::Distinct(Distinct::On(on)) => refuse(&on.on_expr, schema, "DISTINCT ON"),
        LogicalPlan::Aggregate(aggregate) => refuse(&aggregate.group_expr, schema, "GROUP BY"),
        LogicalPlan::Join(join) => join.on.iter().try_for_each(|(left, right)| {
            refuse(std::slice::from_ref(left), join.left.schema(), "JOIN")?;
            refuse(std::slice::from_ref(right), join.right.schema(), "JOIN")
        }),
        _ => Ok(()),
    }
}

/// Returns whether an operator is a comparison.
pub(super) fn is_comparison(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|it| is_of_interval(&it))
}

fn is_of_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
}

fn refuse(all: &[Expr], schema: &DFSchema, what: &str) -> Result<()> {
    match all.iter().any(|it| is_interval(it, schema)) {
        true => Err(unsupported(what)),
        false => Ok(()),
    }
}

fn refuse_columns(schema: &DFSchema, what: &str) -> Result<()> {
    match schema.fields().iter().any(|it| is_of_interval(it.data_type())) {
        true => Err(unsupported(what)),
        false => Ok(()),
    }
}

fn unsupported(what: &str) -> datafusion::common::DataFusionError {
    SqlError::unsupported(format!("{what} with intervals is not supported"))
        .with_hint("Use extract(epoch FROM …) of the intervals.")
        .into_engine()
}

/// Replaces an interval by its length, for sorting.
pub(super) fn length_of_interval(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match is_interval(&expr, schema) {
        true => Transformed::yes(LENGTH.call(vec![expr])),
        false => Transformed::no(expr),
    }
}

/// Rewrites a comparison of intervals.
pub(super) fn compared(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_one = |it: &Expr| is_interval(it, schema);
    match &expr {
        Expr::BinaryExpr(it) if is_comparison(it.op) && is_one(&it.left) => {
            match is_one(&it.right) {
                true => expr.map_children(|it| Ok(length_of_interval(it, schema))),
                false => Ok(Transformed::no(expr)),
            }
        }
        Expr::Between(it) if is_one(&it.expr) && is_one(&it.low) && is_one(&it.high) => {
            expr.map_children(|it| Ok(length_of_interval(it, schema)))
        }
        Expr::InList(it) if is_one(&it.expr) => Err(unsupported("IN")),
        Expr::Case(it) if it.expr.as_deref().is_some_and(is_one) => Err(unsupported("CASE")),
        Expr::ScalarFunction(call)
            if call.func.name() == Call::Average.name()
                && call.args.first().is_some_and(is_one) =>
        {
            Ok(Transformed::yes(interval_over().call(call.args.clone())))
        }
        Expr::ScalarFunction(call) if COMPARING.contains(&call.func.name()) => {
            match call.args.iter().any(is_one) {
                true => Err(unsupported(call.func.name())),
                false => Ok(Transformed::no(expr)),
            }
        }
        Expr::AggregateFunction(call) => {
            let name = call.func.name();
            let compares = call.params.distinct || COMPARING.contains(&name);
            if !compares || !call.params.args.iter().any(is_one) {
                return Ok(Transformed::no(expr));
            }
            let own = extreme(name).filter(|_| !call.params.distinct);
            let func = own.ok_or_else(|| unsupported(name))?;
            let params = call.params.clone();
            Ok(Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params })))
        }
        Expr::WindowFunction(call) => {
            let params = &call.params;
            let sorted = params.order_by.iter().map(|it| &it.expr);
            let compares = COMPARING.contains(&call.fun.name());
            let args = params.args.iter().filter(|_| compares);
            match sorted.chain(&params.partition_by).chain(args).any(is_one) {
                true => Err(unsupported("a window")),
                false => Ok(Transformed::no(expr)),
            }
        }
        Expr::Cast(it)
            if it.expr.get_type(schema).is_ok_and(|it| it.is_string())
                && let Some(read) = read_text(&it.expr, it.field.data_type()) =>
        {
            Ok(Transformed::yes(read))
        }
        Expr::Cast(it)
            if matches!(it.field.data_type(), DataType::List(_))
                && it.expr.get_type(schema).is_ok_and(|it| it.is_string())
                && !is_empty_array(&it.expr) =>
        {
            let what = "casting text to an array is supported only for literals";
            Err(SqlError::unsupported(what).with_hint("Use string_to_array.").into_engine())
        }
        _ => Ok(Transformed::no(expr)),
    }
}

fn is_empty_array(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(text)), _) if text.trim() == "{}")
}

/// Function that returns the length of an interval.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Length {
    signature: Signature,
}

impl ScalarUDFImpl for Length {
    fn name(&self) -> &'static str {
        "interval_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Decimal128(38, 0))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match &args.args[0] {
            ColumnarValue::Array(array) => ColumnarValue::Array(lengths(array)?),
            ColumnarValue::Scalar(scalar) => {
                let found = lengths(&scalar.to_array()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?)
            }
        })
    }
}

fn lengths(array: &ArrayRef) -> Result<ArrayRef> {
    let spans = cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?;
    let spans = spans.as_primitive::<IntervalMonthDayNanoType>();
    let found: Decimal128Array = spans.iter().map(|it| it.map(length_of)).collect();
    Ok(Arc::new(found.with_precision_and_scale(38, 0)?))
}
