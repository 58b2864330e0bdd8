//! Fields of records' values, and texts as JSON writes them.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;

use crate::engine::columns::{LogColumn, bytes_of};
use crate::engine::json::{Wanted, wanted_of};

/// How JSON writes a character by its number. Other escapes are of characters that no contained
/// text has.
pub(super) const NUMBERED: &[u8] = b"\\u";

/// A text that JSON writes as it is, or by numbers of its characters. `None` where it has short
/// escapes for one of them.
pub(super) fn plain_text(literal: &ScalarValue) -> Option<String> {
    let text = String::from_utf8(bytes_of(literal)?).ok()?;
    let has_short_escape = |it: char| it.is_control() || matches!(it, '"' | '\\' | '/');
    (!text.is_empty() && !text.contains(has_short_escape)).then_some(text)
}

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
