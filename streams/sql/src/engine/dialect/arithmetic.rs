//! Replaces operators by functions that fail in the same cases as PostgreSQL's operators. Also
//! handles `||`.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::utils::list_ndims;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::array_functions;
use super::calls::{self, Call};
use super::chains;
use super::conversions::{self, To};
use super::extract::extract;
use super::interval_functions;
use super::jsonb::canonical;
use super::jsonb_functions;
use super::own::no_operator;
use super::planned::{is_json, type_of};
use super::refusal::refused;
use super::same_json::{JsonType, parameter_as_json};
use super::shifts::{Towards, shifted};
use super::truncated::interval_of_time;
use crate::error::SqlError;

/// Replaces operators, as far as the types of operands are known. The others are replaced during
/// type coercion, by [`numbers`](super::numbers).
#[derive(Debug)]
pub(in crate::engine) struct Operators;

impl ExprPlanner for Operators {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let operator = match expr.op {
            BinaryOperator::Minus
            | BinaryOperator::HashMinus
            | BinaryOperator::QuestionPipe
            | BinaryOperator::QuestionAnd
            | BinaryOperator::AtArrow
            | BinaryOperator::ArrowAt
                if is_json(&expr.left, schema) || is_json(&expr.right, schema) =>
            {
                return of_jsonb(expr, schema);
            }
            BinaryOperator::Plus => Operator::Plus,
            BinaryOperator::Minus => Operator::Minus,
            BinaryOperator::Multiply => Operator::Multiply,
            BinaryOperator::Divide => Operator::Divide,
            BinaryOperator::Modulo => Operator::Modulo,
            BinaryOperator::PGRegexMatch | BinaryOperator::PGRegexNotMatch => {
                return Ok(matched(expr, Call::Pattern));
            }
            // The engine's case-insensitive match folds more characters than PostgreSQL.
            BinaryOperator::PGRegexIMatch => {
                let op = BinaryOperator::PGRegexMatch;
                return Ok(matched(RawBinaryExpr { op, ..expr }, Call::FoldedPattern));
            }
            BinaryOperator::PGRegexNotIMatch => {
                let op = BinaryOperator::PGRegexNotMatch;
                return Ok(matched(RawBinaryExpr { op, ..expr }, Call::FoldedPattern));
            }
            BinaryOperator::StringConcat => return joined(expr, schema),
            BinaryOperator::PGOverlap | BinaryOperator::AtArrow | BinaryOperator::ArrowAt => {
                return Ok(of_arrays(expr, schema));
            }
            BinaryOperator::PGBitwiseShiftLeft => {
                let shifted = shifted(expr.left, expr.right, Towards::Left);
                return Ok(PlannerResult::Planned(shifted));
            }
            BinaryOperator::PGBitwiseShiftRight => {
                let shifted = shifted(expr.left, expr.right, Towards::Right);
                return Ok(PlannerResult::Planned(shifted));
            }
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let (Ok(left), Ok(right)) = (type_of(&expr.left, schema), type_of(&expr.right, schema))
        else {
            return Ok(PlannerResult::Original(expr));
        };
        if let Some(call) = scaled(operator, &expr, (&left, &right)) {
            return Ok(PlannerResult::Planned(call));
        }
        if let ((DataType::Timestamp(..), DataType::Timestamp(..)), Operator::Minus) =
            ((&left, &right), operator)
        {
            let apart = BinaryExpr::new(Box::new(expr.left), operator, Box::new(expr.right));
            let apart = interval_of_time().call(vec![Expr::BinaryExpr(apart)]);
            return Ok(PlannerResult::Planned(apart));
        }
        if !(left.is_numeric() && right.is_numeric()) {
            return Ok(PlannerResult::Original(with_time(expr, operator, (&left, &right))));
        }
        let call = chains::call((expr.left, &left), operator, (expr.right, &right))?;
        Ok(PlannerResult::Planned(call))
    }

    fn plan_extract(&self, arguments: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        extract(arguments)
    }
}

/// Converts a pattern to the engine's syntax.
fn matched(expr: RawBinaryExpr, pattern: Call) -> PlannerResult<RawBinaryExpr> {
    let pattern = ScalarFunction::new_udf(calls::udf(pattern), vec![expr.right]);
    PlannerResult::Original(RawBinaryExpr { right: Expr::ScalarFunction(pattern), ..expr })
}

/// Plans an interval times or divided by a number.
fn scaled(
    operator: Operator,
    expr: &RawBinaryExpr,
    (left, right): (&DataType, &DataType),
) -> Option<Expr> {
    let is_interval = |it: &DataType| matches!(it, DataType::Interval(_) | DataType::Duration(_));
    let (left_expr, right_expr) = (expr.left.clone(), expr.right.clone());
    let (name, operands) = match operator {
        Operator::Multiply if is_interval(left) && right.is_numeric() => {
            (interval_functions::TIMES, vec![left_expr, right_expr])
        }
        Operator::Multiply if left.is_numeric() && is_interval(right) => {
            (interval_functions::TIMES, vec![right_expr, left_expr])
        }
        Operator::Divide if is_interval(left) && right.is_numeric() => {
            (interval_functions::OVER, vec![left_expr, right_expr])
        }
        _ => return None,
    };
    let function = interval_functions::functions().into_iter().find(|it| it.name() == name)?;
    Some(function.call(operands))
}

/// Converts a time of day beside a timestamp to an interval.
fn with_time(
    expr: RawBinaryExpr,
    operator: Operator,
    types: (&DataType, &DataType),
) -> RawBinaryExpr {
    match (types, operator) {
        ((DataType::Timestamp(..), DataType::Time64(_)), Operator::Plus | Operator::Minus) => {
            RawBinaryExpr { right: interval_of_time().call(vec![expr.right]), ..expr }
        }
        ((DataType::Time64(_), DataType::Timestamp(..)), Operator::Plus) => {
            let right = interval_of_time().call(vec![expr.left]);
            RawBinaryExpr { left: expr.right, right, ..expr }
        }
        _ => expr,
    }
}

/// Converts the difference of two times that was not known as one during planning, and that the
/// engine would add and compare as one number, to an interval.
pub(super) fn difference(expr: Expr, schema: &DFSchema) -> Expr {
    let is_difference = matches!(&expr, Expr::BinaryExpr(it) if it.op == Operator::Minus)
        && matches!(type_of(&expr, schema), Ok(DataType::Duration(_)));
    if is_difference { interval_of_time().call(vec![expr]) } else { expr }
}

/// Plans `&&`, `@>` and `<@` of arrays. Leaves other types to the engine.
fn of_arrays(expr: RawBinaryExpr, schema: &DFSchema) -> PlannerResult<RawBinaryExpr> {
    let (left, right) = operand_types(&expr, schema);
    let name = match expr.op {
        BinaryOperator::PGOverlap => array_functions::OVERLAP,
        _ => array_functions::CONTAIN,
    };
    let function = array_functions::functions().into_iter().find(|it| it.name() == name);
    match function {
        Some(function) if list_ndims(&left) > 0 && list_ndims(&right) > 0 => {
            PlannerResult::Planned(function.call(match expr.op {
                BinaryOperator::ArrowAt => vec![expr.right, expr.left],
                _ => vec![expr.left, expr.right],
            }))
        }
        _ => PlannerResult::Original(expr),
    }
}

/// Plans an operator of jsonb. The other operand may be a literal.
fn of_jsonb(expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
    use BinaryOperator::{ArrowAt, AtArrow, HashMinus, Minus, QuestionPipe, StringConcat};
    let jsonb =
        |operand: Expr| match operand {
            it if is_json(&it, schema) => Ok(it),
            Expr::Literal(ScalarValue::Null, metadata) => {
                Ok(Expr::Literal(ScalarValue::Null, metadata))
            }
            Expr::Literal(ScalarValue::Utf8(Some(text)), _) => {
                Ok(lit(canonical(&text).map_err(SqlError::into_engine)?))
            }
            it @ Expr::Placeholder(_) => Ok(parameter_as_json(it, JsonType::Jsonb)),
            // A jsonb and a text are concatenated as texts.
            _ => Err(refused(&format!("operator {} between json and another type", expr.op))
                .into_engine()),
        };
    let (left, right) = (expr.left, expr.right);
    let takes_jsons = matches!(expr.op, StringConcat | AtArrow | ArrowAt);
    if !takes_jsons && is_json(&right, schema) {
        return Err(no_operator(&expr.op).into_engine());
    }
    let (name, operands) = match &expr.op {
        StringConcat => (jsonb_functions::CONCATENATED, vec![jsonb(left)?, jsonb(right)?]),
        AtArrow => (jsonb_functions::CONTAINS, vec![jsonb(left)?, jsonb(right)?]),
        ArrowAt => (jsonb_functions::CONTAINS, vec![jsonb(right)?, jsonb(left)?]),
        Minus => (jsonb_functions::WITHOUT, vec![jsonb(left)?, right]),
        HashMinus => (jsonb_functions::WITHOUT_PATH, vec![jsonb(left)?, right]),
        QuestionPipe => (jsonb_functions::HAS_ANY, vec![jsonb(left)?, right]),
        _ => (jsonb_functions::HAS_ALL, vec![jsonb(left)?, right]),
    };
    let function = jsonb_functions::functions().into_iter().find(|it| it.name() == name);
    let function = function.ok_or_else(|| refused("this json operator").into_engine())?;
    Ok(PlannerResult::Planned(function.call(operands)))
}

/// Plans `||`: NULL adds no element to an array, and JSON is not a text.
fn joined(expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
    if is_json(&expr.left, schema) || is_json(&expr.right, schema) {
        return of_jsonb(expr, schema);
    }
    let bytes = |it: &Expr| conversions::call(To::Bytea, it.clone());
    let mut expr = expr;
    let (left, right) = operand_types(&expr, schema);
    let is_quoted = |it: &Expr, of: &DataType| of.is_string() && matches!(it, Expr::Literal(..));
    if left == DataType::Binary && is_quoted(&expr.right, &right) {
        expr.right = bytes(&expr.right);
    } else if right == DataType::Binary && is_quoted(&expr.left, &left) {
        expr.left = bytes(&expr.left);
    }
    let (left_is_list, right_is_list) = (list_ndims(&left) > 0, list_ndims(&right) > 0);
    if left_is_list != right_is_list {
        let (list, other) = match left_is_list {
            true => (&expr.left, &expr.right),
            false => (&expr.right, &expr.left),
        };
        match other {
            Expr::Literal(value, _) if value.is_null() => {
                return Ok(PlannerResult::Planned(list.clone()));
            }
            Expr::Literal(ScalarValue::Utf8(_), _) => {
                let error = refused("operator || between an array and an untyped literal");
                return Err(error.with_hint("Cast the literal, as in 'a'::text.").into_engine());
            }
            _ => {}
        }
    }
    Ok(PlannerResult::Original(texts(expr, schema)))
}

fn operand_types(expr: &RawBinaryExpr, schema: &DFSchema) -> (DataType, DataType) {
    let of = |it: &Expr| type_of(it, schema).unwrap_or(DataType::Null);
    (of(&expr.left), of(&expr.right))
}

/// Converts the other operand of a text to text.
fn texts(expr: RawBinaryExpr, schema: &DFSchema) -> RawBinaryExpr {
    let (left, right) = operand_types(&expr, schema);
    let is_plain = |it: &DataType| {
        it.is_numeric() || it.is_temporal() || it.is_binary() || *it == DataType::Boolean
    };
    let text = |it: Expr| conversions::call(To::Text, it);
    match (left.is_string(), right.is_string()) {
        (true, false) if is_plain(&right) => RawBinaryExpr { right: text(expr.right), ..expr },
        (false, true) if is_plain(&left) => RawBinaryExpr { left: text(expr.left), ..expr },
        _ => expr,
    }
}
