//! A query's result as changes of its rows, of single records or of groups.

use std::sync::Arc;

use crate::error::{RowError, SqlError};
use crate::query::{Query, Shape, evaluate_all};
use crate::result::change::{Change, ResultChange, ResultRow};
use crate::result::groups::{GroupLimits, Groups};
use crate::row::Row;
use crate::scalar::Value;
use crate::table::TableKind;

/// Incrementally maintained result of a query, without its LIMIT.
///
/// A query without groups needs no state: each change contains the old and the new row. For a
/// grouped query, the groups are stored, so every record that passes the filter must be applied
/// from the start.
#[derive(Debug)]
pub struct View {
    query: Arc<Query>,
    groups: Option<Groups>,
    failed_count: u64,
    first_failure: Option<RowError>,
}

impl View {
    pub fn new(query: Arc<Query>, limits: GroupLimits) -> Self {
        let groups = query.is_grouped().then(|| Groups::new(limits));
        Self { query, groups, failed_count: 0, first_failure: None }
    }

    pub fn query(&self) -> &Arc<Query> {
        &self.query
    }

    /// Returns the number of records on which the query failed, and the first error.
    pub fn failures(&self) -> (u64, Option<RowError>) {
        (self.failed_count, self.first_failure)
    }

    /// Counts a record on which the query failed.
    pub(crate) fn note_failure(&mut self, error: RowError) {
        self.failed_count += 1;
        self.first_failure.get_or_insert(error);
    }

    /// Returns the single row of an aggregate without GROUP BY. Must be called once, before all
    /// changes.
    pub fn start(&mut self) -> Option<ResultChange> {
        self.groups.as_mut()?.start(&self.query)
    }

    /// Appends the changes of rows caused by `change` to `out`. An error means that a memory limit
    /// is exceeded and the result can no longer be maintained.
    pub fn apply(
        &mut self,
        change: &Change<'_>,
        out: &mut Vec<ResultChange>,
    ) -> Result<(), SqlError> {
        let (failed_count, first) = (&mut self.failed_count, &mut self.first_failure);
        let mut failed = |error| {
            *failed_count += 1;
            first.get_or_insert(error);
        };
        if let Some(groups) = &mut self.groups {
            return groups.apply(&self.query, [change.old, change.new], &mut failed, out);
        }
        let before = change.old.and_then(|it| result_row(&self.query, it).ok());
        let after = change.new.and_then(|it| result_row(&self.query, it).map_err(failed).ok());
        let key = record_key(self.query.kind, change);
        let change = ResultChange { key, before: before.map(Arc::new), after: after.map(Arc::new) };
        if change.is_change() {
            out.push(change);
        }
        Ok(())
    }
}

fn result_row(query: &Query, row: &Row<'_>) -> Result<ResultRow, RowError> {
    let Shape::Records { projection } = &query.shape else {
        return Err(RowError::InvalidArgument("a grouped query has no row of each record"));
    };
    let columns = evaluate_all(projection, row)?;
    let order = query.order.iter().map(|it| Ok(it.expr.evaluate(row)?.into_owned()));
    Ok(ResultRow { columns, order: order.collect::<Result<Vec<Value<'_>>, RowError>>()? })
}

/// Returns partition and key for current values, partition and offset for a log.
fn record_key(kind: TableKind, change: &Change<'_>) -> Arc<[u8]> {
    let mut bytes = change.partition.to_be_bytes().to_vec();
    match kind {
        TableKind::Values => bytes.extend(change.key.unwrap_or_default()),
        TableKind::Log => bytes.extend(change.offset.unwrap_or_default().to_be_bytes()),
    }
    bytes.into()
}
