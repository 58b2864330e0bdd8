//! Literals of SQL.

use std::borrow::Cow;

use rust_decimal::prelude::ToPrimitive;
use sqlparser::ast;

use crate::error::{SqlError, SqlState};
use crate::expr::typing::Bound;
use crate::scalar::{Value, parse};
use crate::types::Type;

pub(super) fn bind_literal(literal: &ast::Value) -> Result<Bound, SqlError> {
    match literal {
        ast::Value::Number(digits, false) => bind_number(digits),
        ast::Value::Boolean(it) => Ok(Bound::literal(Value::Bool(*it), Type::Bool)),
        ast::Value::Null => Ok(Bound::literal(Value::Null, Type::Unknown)),
        ast::Value::SingleQuotedString(text)
        | ast::Value::EscapedStringLiteral(text)
        | ast::Value::UnicodeStringLiteral(text) => Ok(text_literal(text)),
        ast::Value::DollarQuotedString(text) => Ok(text_literal(&text.value)),
        ast::Value::Placeholder(name) => {
            Err(SqlError::not_supported(format_args!("parameter {name} without a value")))
        }
        other => Err(SqlError::not_supported(format_args!("the literal {other}"))),
    }
}

fn text_literal(text: &str) -> Bound {
    Bound::literal(Value::Text(Cow::Owned(text.to_owned())), Type::Unknown)
}

/// Binds a number: `integer` if it fits, else `bigint`, else `numeric`; `numeric` with a point or
/// exponent.
fn bind_number(digits: &str) -> Result<Bound, SqlError> {
    let text = Cow::Borrowed(digits);
    for data_type in [Type::Int4, Type::Int8] {
        if let Ok(value) = parse(&text, data_type) {
            return Ok(Bound::literal(value.into_owned(), data_type));
        }
    }
    let value = parse(&text, Type::Numeric).map_err(|error| {
        SqlError::new(error.state(), format!("number {digits}: {error}"))
            .with_hint("numeric has at most 28 significant digits here; cast text to float8")
    })?;
    Ok(Bound::literal(value.into_owned(), Type::Numeric))
}

/// Parses the literal after LIMIT or FETCH, a number of rows.
pub(crate) fn whole_number(expr: &ast::Expr, what: &str) -> Result<usize, SqlError> {
    let number = match expr {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(digits, false) => digits.parse::<u64>().ok(),
            _ => None,
        },
        _ => None,
    };
    number.and_then(|it| it.to_usize()).ok_or_else(|| {
        SqlError::new(SqlState::INVALID_PARAMETER, format!("{what} must be a whole number"))
    })
}
