//! Conclusions from a filter on values' bytes: a text, or a number behind a key.

use std::fmt::{self, Display};

use datafusion::logical_expr::Expr;
use live_queries::Contained as Bytes;

use super::number::contained_number;
use super::text::contained_text;
use crate::engine::dialect::guarded;

/// Bytes of each value for which a filter holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contained {
    bytes: Bytes,
    /// Of a number: the path of its field.
    path: Vec<Expr>,
}

impl Contained {
    /// `None` where the filter tells nothing of bytes.
    pub(crate) fn of(filter: &Expr) -> Option<Self> {
        // It holds only where what is guarded in it does.
        let filter = guarded(filter).unwrap_or(filter);
        if let Some(text) = contained_text(filter) {
            return Some(Self { bytes: Bytes::Text(text), path: Vec::new() });
        }
        let (path, number) = contained_number(filter)?;
        Some(Self { bytes: Bytes::Number(number), path: path.to_vec() })
    }

    /// Returns whether the filter can hold for a value that is among these bytes.
    #[inline]
    pub(crate) fn may_be_in(&self, bytes: &[u8]) -> bool {
        self.bytes.may_be_in(bytes)
    }

    /// Takes in what another filter tells of the same number, if both do.
    pub(crate) fn narrow(&mut self, other: &Self) -> bool {
        match (&mut self.bytes, &other.bytes) {
            (Bytes::Number(number), Bytes::Number(more)) if self.path == other.path => {
                number.narrow(more)
            }
            _ => false,
        }
    }
}

impl Display for Contained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.fmt(f)
    }
}
