//! Fields of records' values.

use datafusion::logical_expr::Expr;

use crate::engine::columns::LogColumn;
use crate::engine::json::{Wanted, wanted_of};

/// The path of what is the text of a field of a record's value, where it does not depend on the
/// record.
pub(super) fn field_path(expr: &Expr) -> Option<&[Expr]> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let (Expr::Column(column), path) = call.args.split_first()? else { return None };
    let is_field = wanted_of(&call.func) == Some(Wanted::Text)
        && column.name() == LogColumn::Value.name()
        && path.iter().all(|it| matches!(it, Expr::Literal(..)));
    is_field.then_some(path)
}
