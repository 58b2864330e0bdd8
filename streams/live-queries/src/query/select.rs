//! A compiled query.

use std::sync::Arc;

use crate::error::RowError;
use crate::expr::{Aggregate, Expr};
use crate::json::{PathId, Paths};
use crate::query::filter::Filter;
use crate::row::Row;
use crate::scalar::Value;
use crate::table::TableKind;
use crate::types::Type;

/// A column of a query's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    pub name: String,
    pub data_type: Type,
}

/// A query on records of one table, compiled with the [`Paths`] of its topic.
#[derive(Debug)]
pub struct Query {
    pub(crate) columns: Vec<OutputColumn>,
    pub(crate) filter: Arc<Filter>,
    pub(crate) shape: Shape,
    pub(crate) order: Vec<OrderKey>,
    pub(crate) limit: Option<usize>,
    pub(crate) kind: TableKind,
    /// Output columns that identify rows: the record's key, or all grouping keys.
    pub(crate) identity: Vec<usize>,
    pub(crate) paths: Vec<PathId>,
}

/// Relation of result rows to records.
#[derive(Debug)]
pub(crate) enum Shape {
    /// One row for each record.
    Records { projection: Vec<Expr> },
    /// One row for each group. Projection and HAVING refer to its keys and aggregates.
    Groups {
        keys: Vec<Expr>,
        aggregates: Vec<Aggregate>,
        projection: Vec<Expr>,
        having: Option<Expr>,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct OrderKey {
    pub(crate) expr: Expr,
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

impl Query {
    /// Returns the output columns in order.
    pub fn columns(&self) -> &[OutputColumn] {
        &self.columns
    }

    /// Returns the columns that identify rows: the record's key, or all grouping keys. `None` if
    /// not all of them are selected.
    pub fn identity(&self) -> Option<&[usize]> {
        let is_one_row = matches!(&self.shape, Shape::Groups { keys, .. } if keys.is_empty());
        (is_one_row || !self.identity.is_empty()).then_some(&self.identity)
    }

    /// Returns the first duplicate column name, if any.
    pub fn repeated_name(&self) -> Option<&str> {
        let columns = self.columns();
        let is_repeated = |(index, column): &(usize, &OutputColumn)| {
            columns[..*index].iter().any(|it| it.name == column.name)
        };
        columns.iter().enumerate().find(is_repeated).map(|(_, column)| &*column.name)
    }

    /// Returns whether a numeric column never has fractional digits, such as a sum of integers.
    pub fn is_whole(&self, column: usize) -> bool {
        let Shape::Groups { keys, aggregates, projection, .. } = &self.shape else { return false };
        match projection[column] {
            Expr::Result(index) => {
                index.checked_sub(keys.len()).is_some_and(|it| aggregates[it].is_whole)
            }
            _ => false,
        }
    }

    pub fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    /// Returns whether the order or number of rows matters.
    pub fn is_top(&self) -> bool {
        self.limit.is_some()
    }

    pub fn is_grouped(&self) -> bool {
        matches!(self.shape, Shape::Groups { .. })
    }

    /// Evaluates the selected columns of a record that passes the filter. `None` for a grouped
    /// query.
    pub fn project(&self, row: &Row<'_>) -> Option<Result<Vec<Value<'static>>, RowError>> {
        match &self.shape {
            Shape::Records { projection } => Some(evaluate_all(projection, row)),
            Shape::Groups { .. } => None,
        }
    }

    /// Evaluates some columns of a record that passes the filter, lazily. `None` for a grouped
    /// query.
    pub(crate) fn columns_of<'a>(
        &'a self,
        row: &Row<'a>,
        columns: &'a [usize],
    ) -> Option<impl ExactSizeIterator<Item = Result<Value<'a>, RowError>>> {
        let Shape::Records { projection } = &self.shape else { return None };
        Some(columns.iter().map(|it| projection[*it].evaluate(row)))
    }

    /// Releases the query's paths. Must be called once, when the query ends.
    pub fn release(&self, paths: &mut Paths) {
        self.paths.iter().for_each(|it| paths.release(*it));
    }
}

pub(crate) fn evaluate_all(exprs: &[Expr], row: &Row<'_>) -> Result<Vec<Value<'static>>, RowError> {
    exprs.iter().map(|it| Ok(it.evaluate(row)?.into_owned())).collect()
}
