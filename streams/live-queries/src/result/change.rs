//! Changes of a result: records at the one end, rows of a result at the other.

use std::sync::Arc;

use crate::row::Row;
use crate::scalar::Value;

/// A change of one key of a table, or a record more of its log.
///
/// `old` and `new` are there only if they pass the query's filter ([`crate::FilterIndex::find`],
/// [`crate::Filter::passes`]); of a log there is never an old one. A key that was deleted or has
/// expired has no new one.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    pub partition: i32,
    /// Offset of the record that changes it. `None` where time does: a key has expired.
    pub offset: Option<i64>,
    /// When it is applied, in milliseconds since 1970.
    pub time_ms: i64,
    pub key: Option<&'a [u8]>,
    pub old: Option<&'a Row<'a>>,
    pub new: Option<&'a Row<'a>>,
}

/// A row of a result.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultRow {
    pub columns: Vec<Value<'static>>,
    /// Values that ORDER BY orders it by.
    pub(crate) order: Vec<Value<'static>>,
}

/// One row of a result in place of another: of the same key, or of the same group.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultChange {
    /// Key that tells rows of the result apart.
    pub key: Arc<[u8]>,
    pub before: Option<Arc<ResultRow>>,
    pub after: Option<Arc<ResultRow>>,
}

impl ResultRow {
    /// Bytes of memory that it takes, about.
    pub fn bytes(&self) -> usize {
        let values = self.columns.iter().chain(&self.order);
        size_of::<Self>() + values.map(Value::bytes).sum::<usize>()
    }
}

impl ResultChange {
    /// Returns whether anything is to be seen of it.
    pub(crate) fn is_change(&self) -> bool {
        self.before != self.after
    }
}
