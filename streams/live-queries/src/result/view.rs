//! A query's result as changes of its rows: of records one by one, or of groups.

use std::sync::Arc;

use crate::error::{RowError, SqlError};
use crate::query::{Query, Shape, evaluate_all};
use crate::result::change::{Change, ResultChange, ResultRow};
use crate::result::groups::{GroupLimits, Groups};
use crate::row::Row;
use crate::scalar::Value;
use crate::table::TableKind;

/// The result of a query, without its LIMIT, as records change.
///
/// Of a query of records it keeps nothing: each change tells what was and what is. Of a query of
/// groups it keeps the groups, and so needs every record that passes the filter from the first.
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

    /// Records on which the query failed, and how at the first.
    pub fn failures(&self) -> (u64, Option<RowError>) {
        (self.failed_count, self.first_failure)
    }

    /// Counts a record on which the query failed.
    pub(crate) fn note_failure(&mut self, error: RowError) {
        self.failed_count += 1;
        self.first_failure.get_or_insert(error);
    }

    /// To be called once before all changes: the one row of an aggregate without GROUP BY.
    pub fn start(&mut self) -> Option<ResultChange> {
        self.groups.as_mut()?.start(&self.query)
    }

    /// Adds the changes of rows that `change` makes to `out`. An error means that the result cannot
    /// be kept any more: a limit of memory is reached.
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

/// Partition and key of current values; partition and offset in a log.
fn record_key(kind: TableKind, change: &Change<'_>) -> Arc<[u8]> {
    let mut bytes = change.partition.to_be_bytes().to_vec();
    match kind {
        TableKind::Values => bytes.extend(change.key.unwrap_or_default()),
        TableKind::Log => bytes.extend(change.offset.unwrap_or_default().to_be_bytes()),
    }
    bytes.into()
}
