//! Texts that values contain where an equality holds.

use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use memchr::memmem::Finder;

use super::field::{NUMBERED, field_path, plain_text};

/// A text that stands in each value for which `value->>'field' = 'text'` holds, as it is or with
/// some of its characters written by their numbers.
#[derive(Clone, Debug)]
pub(crate) struct ContainedText {
    text: String,
    plain: Finder<'static>,
    numbered: Finder<'static>,
}

impl PartialEq for ContainedText {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ContainedText {}

impl ContainedText {
    /// `None` where the filter is of another form, or JSON has short escapes for what it asks.
    pub(crate) fn of(filter: &Expr) -> Option<Self> {
        let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = filter else {
            return None;
        };
        let literal = match (field_path(left), field_path(right)) {
            (Some(_), _) => right,
            (_, Some(_)) => left,
            _ => return None,
        };
        let Expr::Literal(literal, _) = literal.as_ref() else { return None };
        let text = plain_text(literal)?;
        let plain = Finder::new(&text).into_owned();
        Some(Self { text, plain, numbered: Finder::new(NUMBERED) })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the filter can hold for a value that is among these bytes.
    pub(crate) fn may_be_in(&self, bytes: &[u8]) -> bool {
        self.plain.find(bytes).is_some() || self.numbered.find(bytes).is_some()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::{col, lit};

    use super::*;
    use crate::engine::json::field;

    fn of(filter: &Expr) -> Option<String> {
        ContainedText::of(filter).map(|it| it.text().to_owned())
    }

    #[test]
    fn equality_with_a_field_tells_a_text() {
        let symbol = || field(col("value"), vec![lit("symbol")], false);
        assert_eq!(of(&symbol().eq(lit("S1"))).as_deref(), Some("S1"));
        assert_eq!(of(&lit("\u{e9}").eq(symbol())).as_deref(), Some("\u{e9}"));
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

    #[test]
    fn a_text_is_looked_for_as_it_is_and_by_numbers() {
        let filter = field(col("value"), vec![lit("a")], false).eq(lit("S17"));
        let text = ContainedText::of(&filter).expect("it tells one");
        for (value, expected) in [
            (r#"{"a":"S17"}"#, true),
            (r#"{"a":"\u005317"}"#, true),
            (r#"{"a":"S\\17"}"#, false),
            (r#"{"a":"S1"}"#, false),
            ("", false),
        ] {
            assert_eq!(text.may_be_in(value.as_bytes()), expected, "{value}");
        }
    }
}
