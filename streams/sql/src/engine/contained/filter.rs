//! Byte patterns implied by a filter: a text, or a number after a key.

use std::fmt::{self, Display};

use datafusion::logical_expr::Expr;
use live_queries::Contained as Bytes;

use super::number::contained_number;
use super::text::contained_text;
use crate::engine::dialect::guarded;

/// Byte pattern in each value that satisfies a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contained {
    bytes: Bytes,
    /// Path of the field, for a number.
    path: Vec<Expr>,
}

impl Contained {
    /// Derives the pattern. Returns `None` if the filter implies none.
    pub(crate) fn of(filter: &Expr) -> Option<Self> {
        // A guarded filter implies what the guarded expression implies.
        let filter = guarded(filter).unwrap_or(filter);
        if let Some(text) = contained_text(filter) {
            return Some(Self { bytes: Bytes::Text(text), path: Vec::new() });
        }
        let (path, number) = contained_number(filter)?;
        Some(Self { bytes: Bytes::Number(number), path: path.to_vec() })
    }

    /// Returns whether these bytes can include a value that satisfies the filter.
    #[inline]
    pub(crate) fn may_be_in(&self, bytes: &[u8]) -> bool {
        self.bytes.may_be_in(bytes)
    }

    /// Intersects with the pattern of another filter, if both are for the same number.
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
