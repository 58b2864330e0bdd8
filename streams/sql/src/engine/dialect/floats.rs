//! Changes of numbers before types are made equal. A float that meets a `numeric` keeps being one,
//! as in PostgreSQL: the engine would make both numbers of few digits, which large and small floats
//! do not fit. A minus before an integer fails where the result does not fit.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{InSubquery, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;

use super::chains;
use crate::error::SqlError;

/// Functions whose arguments become one type.
const OF_ONE_TYPE: &[&str] = &["coalesce", "greatest", "least", "nullif"];

/// Functions that PostgreSQL has for floats of 64 bits, and for no narrower ones.
const OF_DOUBLES: &[&str] = &[
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "cos", "cosh",
    "cot", "degrees", "exp", "floor", "ln", "log", "log10", "power", "radians", "round", "sin",
    "sinh", "sqrt", "tan", "tanh", "trunc",
];

/// Digits of an integer of 64 bits.
const INTEGER_PRECISION: u8 = 20;

/// To be the first of the rules, before types are made equal.
#[derive(Debug)]
pub(in crate::engine) struct KeepFloats;

impl AnalyzerRule for KeepFloats {
    fn name(&self) -> &'static str {
        "keep_floats"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_up_with_subqueries(|plan| {
            let schema = merge_schema(&plan.inputs());
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let changed = expr.transform_up(|expr| keep_floats(expr, &schema))?;
                Ok(changed.update_data(|expr| name.restore(expr)))
            })
        });
        Ok(changed?.data)
    }
}

fn keep_floats(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if let Expr::Negative(number) = &expr
        && let Ok(of) = number.get_type(schema)
        && of.is_signed_integer()
    {
        // The engine's minus goes around.
        let operands = vec![lit(ScalarValue::new_zero(&of)?), number.as_ref().clone()];
        let call = chains::call(vec![Operator::Minus], operands, Some(of));
        return Ok(Transformed::yes(call));
    }
    if let Expr::ScalarFunction(call) = &expr
        && OF_DOUBLES.contains(&call.func.name())
    {
        return of_doubles(call.clone(), schema);
    }
    if let Expr::InSubquery(it) = &expr {
        return compared_with_rows(it.clone(), schema);
    }
    if !makes_one_type(&expr) {
        return Ok(Transformed::no(expr));
    }
    // Columns of an outer query are not in the schema: their types stay as they are.
    let type_of = |operand: &Expr| operand.get_type(schema).ok();
    let (mut has_float, mut has_decimal) = (false, false);
    expr.apply_children(|operand| {
        has_float |= type_of(operand).is_some_and(|it| it.is_floating());
        has_decimal |= type_of(operand).is_some_and(|it| it.is_decimal());
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !(has_float && has_decimal) {
        return Ok(Transformed::no(expr));
    }
    expr.map_children(|operand| match type_of(&operand).is_some_and(|it| it.is_decimal()) {
        true => Ok(Transformed::yes(operand.cast_to(&DataType::Float64, schema)?)),
        false => Ok(Transformed::no(operand)),
    })
}

fn of_doubles(mut call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (name, count) = (call.func.name().to_owned(), call.args.len());
    let mut is_changed = false;
    for (index, operand) in call.args.iter_mut().enumerate() {
        let to = match (name.as_str(), index, operand.get_type(schema)) {
            (_, _, Ok(DataType::Float32)) => DataType::Float64,
            // Of one integer it is that of floats, and with a count of digits that of numerics.
            ("round", 0, Ok(it)) if count == 1 && it.is_integer() => DataType::Float64,
            ("round" | "trunc", 0, Ok(it)) if count == 2 && it.is_integer() => {
                DataType::Decimal128(INTEGER_PRECISION, 0)
            }
            _ => continue,
        };
        *operand = std::mem::take(operand).cast_to(&to, schema)?;
        is_changed = true;
    }
    Ok(Transformed::new_transformed(Expr::ScalarFunction(call), is_changed))
}

/// Of `numeric IN (SELECT float)` the numeric becomes a float.
fn compared_with_rows(mut it: InSubquery, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let rows = it.subquery.subquery.schema();
    let row = rows.fields().first().map(|it| it.data_type().clone());
    match (it.expr.get_type(schema), row) {
        (Ok(one), Some(row)) if one.is_decimal() && row.is_floating() => {
            it.expr = Box::new(it.expr.cast_to(&DataType::Float64, schema)?);
            Ok(Transformed::yes(Expr::InSubquery(it)))
        }
        (Ok(one), Some(row)) if one.is_floating() && row.is_decimal() => {
            let what = "double precision IN a query of numeric is not supported";
            Err(SqlError::unsupported(what)
                .with_hint("Cast the query's column to double precision.")
                .into_engine())
        }
        _ => Ok(Transformed::no(Expr::InSubquery(it))),
    }
}

/// Whether the operands become one type.
fn makes_one_type(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(it) => !it.op.is_logic_operator(),
        Expr::Between(_) | Expr::InList(_) => true,
        Expr::ScalarFunction(call) => OF_ONE_TYPE.contains(&call.func.name()),
        _ => false,
    }
}
