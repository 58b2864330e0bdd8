//! Fields of record values.

use datafusion::logical_expr::Expr;

use crate::engine::columns::LogColumn;
use crate::engine::json::{Wanted, wanted_of};

/// Returns the path of a text lookup in a record's value, if the path is constant.
pub(super) fn field_path(expr: &Expr) -> Option<&[Expr]> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let (Expr::Column(column), path) = call.args.split_first()? else { return None };
    let is_field = wanted_of(&call.func) == Some(Wanted::Text)
        && column.name() == LogColumn::Value.name()
        && path.iter().all(|it| matches!(it, Expr::Literal(..)));
    is_field.then_some(path)
}
