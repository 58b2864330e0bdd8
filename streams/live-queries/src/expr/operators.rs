//! Binding of SQL operators to bound operands.

use sqlparser::ast::{self, BinaryOperator};

use crate::error::{SqlError, SqlState};
use crate::expr::literal::bind_literal;
use crate::expr::syntax::{Arithmetic, Comparison, Expr};
use crate::expr::typing::{Bound, no_operator, unify_compared};
use crate::json::Step;
use crate::scalar::Value;
use crate::types::Type;

pub(super) fn boolean(expr: Expr) -> Result<Bound, SqlError> {
    Bound::new(expr, Type::Bool)
}

pub(super) fn negate_if(negated: bool, bound: Bound) -> Result<Bound, SqlError> {
    if negated { boolean(Expr::Not(Box::new(bound.expr))) } else { Ok(bound) }
}

pub(super) fn comparison(operator: &BinaryOperator) -> Option<Comparison> {
    Some(match operator {
        BinaryOperator::Eq => Comparison::Equal,
        BinaryOperator::NotEq => Comparison::NotEqual,
        BinaryOperator::Lt => Comparison::Less,
        BinaryOperator::LtEq => Comparison::LessOrEqual,
        BinaryOperator::Gt => Comparison::Greater,
        BinaryOperator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

pub(super) fn arithmetic(operator: &BinaryOperator) -> Option<Arithmetic> {
    Some(match operator {
        BinaryOperator::Plus => Arithmetic::Add,
        BinaryOperator::Minus => Arithmetic::Subtract,
        BinaryOperator::Multiply => Arithmetic::Multiply,
        BinaryOperator::Divide => Arithmetic::Divide,
        BinaryOperator::Modulo => Arithmetic::Modulo,
        _ => return None,
    })
}

pub(super) fn compare(
    comparison: Comparison,
    left: Bound,
    right: Bound,
) -> Result<Bound, SqlError> {
    let symbol = match comparison {
        Comparison::Equal => "=",
        Comparison::NotEqual => "<>",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    };
    let (left, right) = unify_compared(left, right, symbol)?;
    boolean(Expr::Compare { comparison, left: Box::new(left), right: Box::new(right) })
}

pub(super) fn concatenation(left: Bound, right: Bound) -> Result<Bound, SqlError> {
    let is_text = |it: &Bound| matches!(it.data_type, Type::Text | Type::Unknown);
    let result = match (left.data_type, right.data_type) {
        (Type::Bytea, Type::Bytea | Type::Unknown) | (Type::Unknown, Type::Bytea) => Type::Bytea,
        _ if is_text(&left) || is_text(&right) => Type::Text,
        (left, right) => return Err(no_operator(left, "||", right)),
    };
    let side = |it: Bound| match result {
        Type::Bytea => it.coerce(Type::Bytea, "an operand"),
        _ => Ok(it.decided().expr),
    };
    Bound::new(Expr::Concat(Box::new(side(left)?), Box::new(side(right)?)), result)
}

pub(super) fn header(steps: &[Step], as_text: bool) -> Result<Bound, SqlError> {
    match (steps, as_text) {
        ([Step::Key(name)], true) => {
            Ok(Bound { expr: Expr::HeaderText(name.clone()), data_type: Type::Text })
        }
        _ => Err(SqlError::not_supported("JSON paths into headers")
            .with_hint("use a header as text: headers->>'name'")),
    }
}

pub(super) fn escape_character(
    escape: Option<&ast::ValueWithSpan>,
) -> Result<Option<char>, SqlError> {
    let Some(escape) = escape else { return Ok(Some('\\')) };
    let invalid = || SqlError::new(SqlState::INVALID_ESCAPE, "invalid escape string");
    let ast::Value::SingleQuotedString(text) = &escape.value else { return Err(invalid()) };
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (first, None) => Ok(first),
        _ => Err(invalid()),
    }
}

pub(super) fn bind_interval(interval: &ast::Interval) -> Result<Bound, SqlError> {
    let unsupported = || SqlError::not_supported(format_args!("{interval}"));
    let ast::Expr::Value(literal) = &*interval.value else { return Err(unsupported()) };
    if interval.last_field.is_some() || interval.leading_precision.is_some() {
        return Err(unsupported());
    }
    let bound = bind_literal(&literal.value)?;
    match (&interval.leading_field, bound.expr) {
        (None, expr) => Bound { expr, data_type: Type::Unknown }.cast_to(Type::Interval),
        (Some(unit), Expr::Literal(Value::Text(number))) => {
            let text = Value::Text(format!("{number} {unit}").into());
            Bound::literal(text, Type::Unknown).cast_to(Type::Interval)
        }
        _ => Err(unsupported()),
    }
}
