//! Rewrites of numeric expressions once the types of operands are known. Arithmetic is replaced by
//! this crate's functions. A float together with a `numeric` stays a float, as in PostgreSQL, while
//! the engine would convert both to decimals too narrow for large and small floats. Functions on
//! double precision get such arguments.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, ScalarUDF, lit};

use super::casts::{NUMERIC_OF_INTEGER, udf as number_cast};
use super::chains;
use super::conversions::{self, To};
use super::own::{Own, does_not_exist, no_operator};
use super::planned::type_of;
use super::refusal::refused;
use super::shifts::combined;
use crate::error::SqlError;

/// Functions that PostgreSQL defines for double precision, and not for real.
const OF_DOUBLES: &[&str] = &[
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "cos", "cosh",
    "cot", "degrees", "exp", "floor", "ln", "log", "log10", "power", "radians", "round", "sin",
    "sinh", "sqrt", "tan", "tanh", "trunc",
];

/// Function for the operator `+` of one operand, until the operand's type is known.
pub(super) const UNARY_PLUS: &str = "unary_plus";

pub(super) fn unary_plus() -> Arc<ScalarUDF> {
    Own::udf(UNARY_PLUS, 1, |types| types.first().cloned(), |arrays| Ok(Arc::clone(&arrays[0])))
}

/// Rewrites an expression whose operands have their final types.
pub(super) fn computed(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    use Operator::{BitwiseAnd, BitwiseOr, BitwiseXor};
    match expr {
        Expr::BinaryExpr(it) if chains::is_operator(it.op) => arithmetic(it, schema),
        Expr::BinaryExpr(it) if matches!(it.op, BitwiseAnd | BitwiseOr | BitwiseXor) => {
            let (left, right) = (it.left.get_type(schema)?, it.right.get_type(schema)?);
            let has_bits = |it: &DataType| it.is_integer() || !it.is_numeric();
            if !(has_bits(&left) && has_bits(&right)) {
                return Err(no_operator(&it.op).into_engine());
            }
            let operands = ((*it.left.clone(), &left), (*it.right.clone(), &right));
            match combined(operands.0, it.op, operands.1) {
                Some(call) => Ok(Transformed::yes(call)),
                None => Ok(Transformed::no(Expr::BinaryExpr(it))),
            }
        }
        Expr::Negative(of) => negated(*of, schema),
        Expr::ScalarFunction(mut call) if call.func.name() == UNARY_PLUS => match call.args.pop() {
            Some(of) if of.get_type(schema)?.is_numeric() => Ok(Transformed::yes(of)),
            _ => Err(no_operator(&Operator::Plus).into_engine()),
        },
        Expr::Case(case) => of_case(case, schema),
        Expr::Between(it) if it.expr.get_type(schema).is_ok_and(|it| it.is_binary()) => {
            Expr::Between(it).map_children(|bound| {
                Ok(match &bound {
                    Expr::Literal(ScalarValue::Utf8(_), _) => {
                        Transformed::yes(conversions::call(To::Bytea, bound))
                    }
                    _ => Transformed::no(bound),
                })
            })
        }
        Expr::InSubquery(mut it) => {
            let rows = it.subquery.subquery.schema().field(0).data_type().clone();
            compared_with_rows(&mut it.expr, &rows, schema)?;
            Ok(Transformed::yes(Expr::InSubquery(it)))
        }
        Expr::SetComparison(mut it) => {
            let rows = it.subquery.subquery.schema().field(0).data_type().clone();
            compared_with_rows(&mut it.expr, &rows, schema)?;
            Ok(Transformed::yes(Expr::SetComparison(it)))
        }
        Expr::ScalarFunction(call) if OF_DOUBLES.contains(&call.func.name()) => {
            of_doubles(call, schema)
        }
        other => match made_one(&other) {
            Some(One::Value) => {
                let to = float_of(&types_of_children(&other, schema)?, One::Value);
                other.map_children(|it| as_float(it, to, schema))
            }
            Some(One::Comparison) => {
                let types = types_of_children(&other, schema)?;
                check_several(&other, &types)?;
                let to = float_of(&types, One::Comparison);
                other.map_children(|it| as_float(it, to, schema))
            }
            None => Ok(Transformed::no(other)),
        },
    }
}

/// Rewrites a minus before an operand. The engine's wraps around on overflow, and negates times.
fn negated(of: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match of.get_type(schema)? {
        DataType::Timestamp(..) => Err(no_operator(&Operator::Minus).into_engine()),
        it if it.is_signed_integer() => {
            let zero = lit(ScalarValue::new_zero(&it)?);
            Ok(Transformed::yes(chains::call((zero, &it), Operator::Minus, (of, &it))?))
        }
        _ => Ok(Transformed::no(Expr::Negative(Box::new(of)))),
    }
}

/// Rewrites operators that were not rewritten during planning: on parameters, on columns that are
/// NULL in the first query of a UNION, and on times.
fn arithmetic(mut it: BinaryExpr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    use DataType::{Date32, Int64, Interval};
    let (left, right) = (it.left.get_type(schema)?, it.right.get_type(schema)?);
    match (&left, &right) {
        (DataType::Null, DataType::Null) => {}
        (Date32, Interval(_)) => {
            it.left = Box::new(conversions::call(To::Timestamp, *it.left));
            return Ok(Transformed::yes(Expr::BinaryExpr(it)));
        }
        (Interval(_), Date32) if it.op == Operator::Plus => {
            it.right = Box::new(conversions::call(To::Timestamp, *it.right));
            return Ok(Transformed::yes(Expr::BinaryExpr(it)));
        }
        // The difference of two dates is an integer number of days.
        (Date32, Date32) if it.op == Operator::Minus => {
            let cast = number_cast(&DataType::Int32).expect("there is a cast to integer");
            return Ok(Transformed::yes(cast.call(vec![Expr::BinaryExpr(it)])));
        }
        (Date32, Int64) | (Int64, Date32) => return Err(no_operator(&it.op).into_engine()),
        (left, right) if [left, right].into_iter().all(|it| it.is_numeric() || it.is_null()) => {
            return Ok(Transformed::yes(chains::call(
                (*it.left, left),
                it.op,
                (*it.right, right),
            )?));
        }
        _ => {}
    }
    Ok(Transformed::no(Expr::BinaryExpr(it)))
}

/// Rejects arithmetic on numerics that the engine would evaluate.
pub(super) fn check_computed(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let is_decimal = |it: &Expr| it.get_type(schema).is_ok_and(|it| it.is_decimal());
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if chains::is_operator(*op) && (is_decimal(left) || is_decimal(right)) =>
        {
            Err(refused(&format!("operator {op} between numeric and a value of another kind"))
                .into_engine())
        }
        _ => Ok(()),
    }
}

pub(super) fn mixed_column() -> SqlError {
    refused("a column with both double precision and numeric values")
        .with_hint("Cast the numeric values to float8.")
}

/// Reason why operands are converted to a common type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum One {
    /// They are compared. PostgreSQL has few operators on real and other numbers.
    Comparison,
    /// One of them is the result.
    Value,
}

fn made_one(expr: &Expr) -> Option<One> {
    match expr {
        Expr::BinaryExpr(it) if !it.op.is_logic_operator() => Some(One::Comparison),
        Expr::Between(_) | Expr::InList(_) => Some(One::Comparison),
        Expr::ScalarFunction(call) => match call.func.name() {
            "nullif" => Some(One::Comparison),
            "coalesce" | "greatest" | "least" => Some(One::Value),
            _ => None,
        },
        _ => None,
    }
}

fn types_of_children(expr: &Expr, schema: &DFSchema) -> Result<Vec<DataType>> {
    let mut types = Vec::new();
    expr.apply_children(|operand| {
        types.push(operand.get_type(schema)?);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(types)
}

/// Returns the float type to which operands of these types are converted, if any.
fn float_of(types: &[DataType], one: One) -> Option<To> {
    let has_double = types.contains(&DataType::Float64);
    let has_real = types.contains(&DataType::Float32);
    let has_exact = types.iter().any(|it| it.is_decimal() || it.is_integer());
    match (has_double, has_real, one) {
        (false, true, One::Value) => Some(To::Float4),
        (false, true, One::Comparison) if has_exact => Some(To::Float8),
        (true, ..) => Some(To::Float8),
        _ => None,
    }
}

fn as_float(expr: Expr, to: Option<To>, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Some(to) = to else { return Ok(Transformed::no(expr)) };
    let of = expr.get_type(schema)?;
    Ok(match of.is_decimal() || of == DataType::Float32 && to == To::Float8 {
        true => Transformed::yes(conversions::call(to, expr)),
        false => Transformed::no(expr),
    })
}

/// Rejects mixed types: PostgreSQL compares with each bound by its own type, and with a list by the
/// common type of its elements.
fn check_several(expr: &Expr, types: &[DataType]) -> Result<()> {
    let is_exact = |it: &DataType| it.is_decimal() || it.is_integer();
    let what = match (expr, types) {
        (Expr::Between(_), [sought, low, high])
            if is_exact(sought)
                && (low.is_floating() && is_exact(high) || is_exact(low) && high.is_floating()) =>
        {
            "BETWEEN with a floating-point and another numeric type"
        }
        (Expr::InList(it), types)
            if it.list.len() > 1
                && types.contains(&DataType::Float32)
                && types.iter().any(is_exact) =>
        {
            "IN with real and other numeric types"
        }
        _ => return Ok(()),
    };
    Err(refused(what).with_hint("Cast them to one type.").into_engine())
}

/// Converts the comparands of a CASE to a common type, and its results to another.
fn of_case(mut case: Case, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let whens = case.when_then_expr.iter_mut();
    let (whens, thens): (Vec<_>, Vec<_>) = whens.map(|(when, then)| (when, then)).unzip();
    let compared: Vec<_> = case.expr.iter_mut().chain(whens).collect();
    let values: Vec<_> = thens.into_iter().chain(case.else_expr.iter_mut()).collect();
    for (operands, one) in [(compared, One::Comparison), (values, One::Value)] {
        let types = operands.iter().map(|it| type_of(it, schema));
        let to = float_of(&types.collect::<Result<Vec<_>>>()?, one);
        for it in operands {
            **it = as_float(std::mem::take(&mut **it), to, schema)?.data;
        }
    }
    Ok(Transformed::yes(Expr::Case(case)))
}

fn of_doubles(mut call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (name, count) = (call.func.name().to_owned(), call.args.len());
    // PostgreSQL rounds only numerics to a number of digits.
    if let ("round" | "trunc", [number, digits]) = (name.as_str(), call.args.as_slice()) {
        let types = [number.get_type(schema)?, digits.get_type(schema)?];
        if types[0].is_floating() {
            return Err(does_not_exist(&name, &types).into_engine());
        }
    }
    let mut is_changed = false;
    for (index, operand) in call.args.iter_mut().enumerate() {
        let to = match (name.as_str(), index, type_of(operand, schema)) {
            (_, _, Ok(DataType::Float32)) => DataType::Float64,
            // `round` of an integer is double precision, and with a number of digits numeric.
            ("round", 0, Ok(it)) if count == 1 && it.is_integer() => DataType::Float64,
            ("round" | "trunc", 0, Ok(it)) if count == 2 && it.is_integer() => NUMERIC_OF_INTEGER,
            _ => continue,
        };
        *operand = std::mem::take(operand).cast_to(&to, schema)?;
        is_changed = true;
    }
    Ok(Transformed::new_transformed(Expr::ScalarFunction(call), is_changed))
}

/// Converts the left operand of a comparison with a subquery to float if the subquery's column is
/// one.
fn compared_with_rows(expr: &mut Expr, rows: &DataType, schema: &DFSchema) -> Result<()> {
    let one = expr.get_type(schema)?;
    if one.is_floating() && rows.is_decimal() {
        return Err(refused("comparing double precision with a numeric subquery")
            .with_hint("Cast the subquery's column to double precision.")
            .into_engine());
    }
    let is_real = one == DataType::Float32 || *rows == DataType::Float32;
    if one != *rows && (is_real && rows.is_numeric() || one.is_decimal() && rows.is_floating()) {
        *expr = conversions::call(To::Float8, std::mem::take(expr));
    }
    Ok(())
}
