//! Numbers, changed where the types of operands are known. Arithmetic is computed by ours. A float
//! that meets a `numeric` keeps being one, as in PostgreSQL: the engine would make both numbers of
//! few digits, which large and small floats do not fit. Functions of doubles are given doubles.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Case, InSubquery, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, lit};

use super::casts::NUMERIC_OF_INTEGER;
use super::chains;
use super::conversions::{self, To};
use super::inexact::refused;
use crate::error::SqlError;

/// Functions whose arguments become one type.
const OF_ONE_TYPE: &[&str] = &["coalesce", "greatest", "least", "nullif"];

/// Functions that PostgreSQL has for floats of 64 bits, and for no narrower ones.
const OF_DOUBLES: &[&str] = &[
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "cos", "cosh",
    "cot", "degrees", "exp", "floor", "ln", "log", "log10", "power", "radians", "round", "sin",
    "sinh", "sqrt", "tan", "tanh", "trunc",
];

/// Changes an expression whose operands have the types that they are going to have.
pub(super) fn computed(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(it) if chains::is_operator(it.op) => arithmetic(it, schema),
        // The engine's minus goes around.
        Expr::Negative(of) if of.get_type(schema).is_ok_and(|it| it.is_signed_integer()) => {
            let data_type = of.get_type(schema)?;
            let zero = lit(ScalarValue::new_zero(&data_type)?);
            let call = chains::call((zero, &data_type), Operator::Minus, (*of, &data_type))?;
            Ok(Transformed::yes(call))
        }
        Expr::Case(case) => keep_floats_of_case(case, schema),
        other => keep_floats(other, schema),
    }
}

/// Operators whose operands had no type when they were planned: parameters, and columns that are
/// NULL in the first of united queries.
fn arithmetic(it: BinaryExpr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (left, right) = (it.left.get_type(schema)?, it.right.get_type(schema)?);
    let is_one = |it: &DataType| it.is_numeric() || it.is_null();
    if !(is_one(&left) && is_one(&right)) || left.is_null() && right.is_null() {
        return Ok(Transformed::no(Expr::BinaryExpr(it)));
    }
    Ok(Transformed::yes(chains::call((*it.left, &left), it.op, (*it.right, &right))?))
}

/// Refuses arithmetic of numerics that the engine would compute.
pub(super) fn check_computed(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let is_decimal = |it: &Expr| it.get_type(schema).is_ok_and(|it| it.is_decimal());
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if chains::is_operator(*op) && (is_decimal(left) || is_decimal(right)) =>
        {
            Err(refused(&format!("{op} of a numeric and a value of another kind")).into_engine())
        }
        _ => Ok(()),
    }
}

/// A column of floats and numerics is one of floats there, and one of numerics here.
pub(super) fn check_united(plan: &LogicalPlan) -> Result<()> {
    let LogicalPlan::Union(union) = plan else { return Ok(()) };
    let is_mixed = |index: usize| {
        let types = || union.inputs.iter().map(|it| it.schema().field(index).data_type());
        types().any(DataType::is_floating) && types().any(DataType::is_decimal)
    };
    match (0..union.schema.fields().len()).any(is_mixed) {
        true => Err(mixed_column().into_engine()),
        false => Ok(()),
    }
}

pub(super) fn mixed_column() -> SqlError {
    refused("a column of double precision and numeric")
        .with_hint("Write ::float8 behind the numerics.")
}

fn keep_floats(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
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
    let mut types = Vec::new();
    expr.apply_children(|operand| {
        types.extend(operand.get_type(schema));
        Ok(TreeNodeRecursion::Continue)
    })?;
    match is_mixed(&types) {
        true => expr.map_children(|operand| Ok(as_float(operand, schema))),
        false => Ok(Transformed::no(expr)),
    }
}

fn is_mixed(types: &[DataType]) -> bool {
    types.iter().any(DataType::is_floating) && types.iter().any(DataType::is_decimal)
}

fn as_float(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr.get_type(schema).is_ok_and(|it| it.is_decimal()) {
        true => Transformed::yes(conversions::call(To::Float8, expr)),
        false => Transformed::no(expr),
    }
}

/// What a CASE compares is of one type, and so are its values.
fn keep_floats_of_case(mut case: Case, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let whens = case.when_then_expr.iter_mut();
    let (whens, thens): (Vec<_>, Vec<_>) = whens.map(|(when, then)| (when, then)).unzip();
    let compared: Vec<_> = case.expr.iter_mut().chain(whens).collect();
    let values: Vec<_> = thens.into_iter().chain(case.else_expr.iter_mut()).collect();
    let mut is_changed = false;
    for operands in [compared, values] {
        let types: Vec<_> = operands.iter().filter_map(|it| it.get_type(schema).ok()).collect();
        if is_mixed(&types) {
            is_changed = true;
            for it in operands {
                **it = as_float(std::mem::take(&mut **it), schema).data;
            }
        }
    }
    Ok(Transformed::new_transformed(Expr::Case(case), is_changed))
}

fn of_doubles(mut call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (name, count) = (call.func.name().to_owned(), call.args.len());
    let mut is_changed = false;
    for (index, operand) in call.args.iter_mut().enumerate() {
        let to = match (name.as_str(), index, operand.get_type(schema)) {
            (_, _, Ok(DataType::Float32)) => DataType::Float64,
            // Of one integer it is that of floats, and with a count of digits that of numerics.
            ("round", 0, Ok(it)) if count == 1 && it.is_integer() => DataType::Float64,
            ("round" | "trunc", 0, Ok(it)) if count == 2 && it.is_integer() => NUMERIC_OF_INTEGER,
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
            it.expr = Box::new(conversions::call(To::Float8, *it.expr));
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
