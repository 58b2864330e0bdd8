//! Changes of records as input, and changes of result rows as output.

use std::sync::Arc;

use crate::row::Row;
use crate::scalar::Value;

/// A change of one key of a table, or an additional record of its log.
///
/// `old` and `new` are only set if they pass the query's filter ([`crate::FilterIndex::find`],
/// [`crate::Filter::passes`]). A log has no old rows. A deleted or expired key has no new row.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    pub partition: i32,
    /// Offset of the record that causes the change. `None` if a key has expired.
    pub offset: Option<i64>,
    /// Time at which the change is applied, Unix milliseconds.
    pub time_ms: i64,
    pub key: Option<&'a [u8]>,
    pub old: Option<&'a Row<'a>>,
    pub new: Option<&'a Row<'a>>,
}

/// A row of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultRow {
    pub columns: Vec<Value<'static>>,
    /// Values of the ORDER BY expressions.
    pub(crate) order: Vec<Value<'static>>,
}

/// Replacement of a result row by another one of the same key or group.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultChange {
    /// Key that identifies rows of the result.
    pub key: Arc<[u8]>,
    pub before: Option<Arc<ResultRow>>,
    pub after: Option<Arc<ResultRow>>,
}

impl ResultRow {
    /// Returns the approximate memory usage.
    pub fn bytes(&self) -> usize {
        let values = self.columns.iter().chain(&self.order);
        size_of::<Self>() + values.map(Value::bytes).sum::<usize>()
    }
}

impl ResultChange {
    /// Returns whether the row differs.
    pub(crate) fn is_change(&self) -> bool {
        self.before != self.after
    }
}
