//! Byte patterns of texts, implied by equality.

use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use live_queries::ContainedText;

use super::field::field_path;
use crate::engine::columns::bytes_of;

/// Returns the pattern in each value for which `value->>'field' = 'text'` holds. Returns `None` for
/// other filters, or if JSON has short escapes for characters of the text.
pub(super) fn contained_text(filter: &Expr) -> Option<ContainedText> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = filter else {
        return None;
    };
    let literal = match (field_path(left), field_path(right)) {
        (Some(_), _) => right,
        (_, Some(_)) => left,
        _ => return None,
    };
    let Expr::Literal(literal, _) = literal.as_ref() else { return None };
    ContainedText::new(&String::from_utf8(bytes_of(literal)?).ok()?)
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::{col, lit};

    use super::*;
    use crate::engine::json::field;

    fn of(filter: &Expr) -> Option<String> {
        contained_text(filter).map(|it| live_queries::Contained::Text(it).to_string())
    }

    #[test]
    fn equality_with_a_field_tells_a_text() {
        let symbol = || field(col("value"), vec![lit("symbol")], false);
        assert_eq!(of(&symbol().eq(lit("S1"))).as_deref(), Some("\"S1\""));
        assert_eq!(of(&lit("\u{e9}").eq(symbol())).as_deref(), Some("\"\u{e9}\""));
        let none = ScalarValue::Utf8(None);
        for text in ["", "a\"", "a/b", "\\", "\n"] {
            assert_eq!(of(&symbol().eq(lit(text))), None, "{text:?}");
        }
        assert_eq!(of(&symbol().eq(lit(none))), None);
        assert_eq!(of(&symbol().not_eq(lit("S1"))), None);
        assert_eq!(of(&col("value").eq(lit("S1"))), None);
        assert_eq!(of(&field(col("value"), vec![lit("a")], true).eq(lit("S1"))), None);
        assert_eq!(of(&field(col("headers"), vec![lit("a")], false).eq(lit("S1"))), None);
        assert_eq!(of(&field(col("value"), vec![col("key")], false).eq(lit("S1"))), None);
    }
}
