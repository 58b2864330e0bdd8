//! What a filter tells of values' bytes: a text, or a number behind a key.

use datafusion::logical_expr::Expr;

use super::number::ContainedNumber;
use super::text::ContainedText;

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
