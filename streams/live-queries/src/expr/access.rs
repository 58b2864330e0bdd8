//! JSON paths in SQL: `value->'a'->>'b'`, and paths from declared columns of type json.

use sqlparser::ast::{self, BinaryOperator};

use crate::error::{SqlError, SqlState};
use crate::expr::typing::no_operator;
use crate::json::Step;
use crate::limits::PATH_STEPS_MAX;
use crate::types::Type;

/// A column expression and the path steps applied to it.
pub(super) struct Access<'a> {
    pub(super) root: &'a ast::Expr,
    pub(super) steps: Vec<Step>,
}

/// Parses the path in `left -> right` or `left ->> right`.
pub(super) fn access<'a>(left: &'a ast::Expr, right: &ast::Expr) -> Result<Access<'a>, SqlError> {
    let mut steps = vec![step(right)?];
    let mut root = left;
    loop {
        root = match root {
            ast::Expr::Nested(inner) => inner,
            ast::Expr::Cast { expr, data_type, .. } if is_json(data_type) => expr,
            ast::Expr::BinaryOp { left, op: BinaryOperator::Arrow, right } => {
                steps.push(step(right)?);
                left
            }
            ast::Expr::BinaryOp { op: BinaryOperator::LongArrow, .. } => {
                return Err(no_operator(Type::Text, "->", Type::Unknown));
            }
            _ => break,
        };
        if steps.len() > PATH_STEPS_MAX {
            let message = format!("a JSON path has more than {PATH_STEPS_MAX} steps");
            return Err(SqlError::new(SqlState::TOO_COMPLEX, message));
        }
    }
    steps.reverse();
    Ok(Access { root, steps })
}

fn is_json(data_type: &ast::DataType) -> bool {
    matches!(data_type, ast::DataType::JSON | ast::DataType::JSONB)
}

fn step(expr: &ast::Expr) -> Result<Step, SqlError> {
    let unsupported = || {
        SqlError::not_supported(format_args!("the JSON path step {expr}"))
            .with_hint("steps are names in quotes and numbers from 0")
    };
    let ast::Expr::Value(literal) = expr else { return Err(unsupported()) };
    match &literal.value {
        ast::Value::SingleQuotedString(key) => Ok(Step::Key(key.clone())),
        ast::Value::Number(digits, false) => {
            digits.parse().map(Step::Index).map_err(|_| unsupported())
        }
        _ => Err(unsupported()),
    }
}
