//! What values contain where a filter holds: found much faster than a value is read.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use memchr::memmem::Finder;

use super::columns::{LogColumn, bytes_of};
use super::contained_number::ContainedNumber;
use super::json::{Wanted, wanted_of};

/// What stands in the bytes of each value for which a filter holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contained {
    Text(ContainedText),
    Number(ContainedNumber),
}

impl Contained {
    /// `None` where the filter tells nothing of bytes.
    pub(crate) fn of(filter: &Expr) -> Option<Self> {
        let text = ContainedText::of(filter).map(Self::Text);
        text.or_else(|| ContainedNumber::of(filter).map(Self::Number))
    }

    /// Whether the filter can hold for a value that is among these bytes.
    #[inline]
    pub(crate) fn may_be_in(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Text(text) => text.may_be_in(bytes),
            Self::Number(number) => number.may_be_in(bytes),
        }
    }

    /// Takes in what another filter tells of the same number, if both do.
    pub(crate) fn narrow(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(number), Self::Number(other)) => number.narrow(other),
            _ => false,
        }
    }
}

impl std::fmt::Display for Contained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{:?}", text.text()),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// How JSON writes a character by its number. Other escapes are of characters that no contained
/// text has.
pub(super) const NUMBERED: &[u8] = b"\\u";

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

#[cfg(test)]
mod tests {
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
