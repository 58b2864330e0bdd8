//! Tables in a query's FROM, and their columns as expressions.

use sqlparser::ast::Ident;

use crate::error::{SqlError, SqlState};
use crate::expr::names::{folded, undefined_column};
use crate::expr::operators::header;
use crate::expr::syntax::{Comparison, Expr};
use crate::expr::typing::{Bound, no_operator};
use crate::json::{PathId, Paths, Step};
use crate::limits::PATHS_MAX;
use crate::scalar::Value;
use crate::table::{ColumnSource, Table, TableColumn};
use crate::types::Type;

/// A table with its alias.
pub(crate) struct Source<'t> {
    pub(crate) table: &'t Table,
    alias: &'t str,
    paths: &'t mut Paths,
    /// Paths that the query has taken from `paths`.
    pub(crate) taken: Vec<PathId>,
}

/// The table whose records a query is evaluated on, and optionally a joined table.
pub(crate) struct Sources<'t> {
    pub(crate) stream: Source<'t>,
    joined: Option<Source<'t>>,
}

/// A resolved column and its table.
pub(super) struct Found<'t> {
    pub(super) column: &'t TableColumn,
    is_joined: bool,
}

/// Numbers of taken paths at some point.
#[derive(Default)]
pub(super) struct TakenCounts(usize, usize);

impl<'t> Source<'t> {
    pub(crate) fn new(table: &'t Table, alias: &'t str, paths: &'t mut Paths) -> Self {
        Self { table, alias, paths, taken: Vec::new() }
    }

    fn take(&mut self, steps: &[Step]) -> Result<PathId, SqlError> {
        let path = self.paths.take(steps).ok_or_else(|| {
            let message =
                format!("live queries on {} use more than {PATHS_MAX} JSON paths", self.table.name);
            SqlError::new(SqlState::TOO_LARGE, message)
        })?;
        self.taken.push(path);
        Ok(path)
    }

    fn give_back(&mut self, from: usize) {
        for path in self.taken.drain(from..) {
            self.paths.release(path);
        }
    }

    fn column(&mut self, column: &TableColumn) -> Result<Expr, SqlError> {
        Ok(match (&column.source, column.data_type) {
            (ColumnSource::Partition, _) => Expr::Partition,
            (ColumnSource::Offset, _) => Expr::Offset,
            (ColumnSource::Time, _) => Expr::Time,
            (ColumnSource::Key, Type::Bytea) => Expr::KeyBytes,
            (ColumnSource::Key, _) => Expr::KeyText,
            (ColumnSource::Value, Type::Bytea) => Expr::ValueBytes,
            (ColumnSource::Value, Type::Json) => Expr::ValueJson,
            (ColumnSource::Value, _) => Expr::ValueText,
            (ColumnSource::Headers, _) => Expr::HeadersJson,
            (ColumnSource::Path(steps) | ColumnSource::PathOrNull(steps), Type::Json) => {
                Expr::PathJson(self.take(steps)?)
            }
            (ColumnSource::Path(steps) | ColumnSource::PathOrNull(steps), Type::Text) => {
                Expr::PathText(self.take(steps)?)
            }
            (ColumnSource::Path(steps), to) => {
                let text = Expr::PathText(self.take(steps)?);
                Expr::Cast { to, operand: Box::new(text) }
            }
            (ColumnSource::PathOrNull(steps), to) => {
                let text = Expr::PathText(self.take(steps)?);
                Expr::CastOrNull { to, operand: Box::new(text) }
            }
            (ColumnSource::Field { name, .. }, to) => {
                let path = self.take(&[Step::Key(name.clone())])?;
                let text = Expr::PathText(path);
                match to {
                    Type::Json => json_or_null(path),
                    Type::Text => text,
                    _ => Expr::Cast { to, operand: Box::new(text) },
                }
            }
        })
    }

    fn path(
        &mut self,
        column: &TableColumn,
        steps: Vec<Step>,
        as_text: bool,
    ) -> Result<Bound, SqlError> {
        let steps = match (&column.source, column.data_type) {
            (ColumnSource::Value, Type::Text | Type::Json) => steps,
            (ColumnSource::Path(before) | ColumnSource::PathOrNull(before), Type::Json) => {
                [&**before, &steps].concat()
            }
            (ColumnSource::Field { name, .. }, Type::Json) => {
                [&[Step::Key(name.clone())], &*steps].concat()
            }
            (ColumnSource::Headers, _) => return header(&steps, as_text),
            (_, other) => return Err(no_operator(other, "->", Type::Unknown)),
        };
        let path = self.take(&steps)?;
        Ok(match as_text {
            true => Bound { expr: Expr::PathText(path), data_type: Type::Text },
            false => Bound { expr: Expr::PathJson(path), data_type: Type::Json },
        })
    }
}

/// Returns an expression for the JSON at a path, with JSON's null as NULL.
fn json_or_null(path: PathId) -> Expr {
    let (json, to) = (Expr::PathJson(path), Type::Text);
    let is_null = Expr::Compare {
        comparison: Comparison::Equal,
        left: Box::new(Expr::Cast { to, operand: Box::new(json.clone()) }),
        right: Box::new(Expr::Literal(Value::Text("null".into()))),
    };
    let null = Expr::Literal(Value::Null);
    Expr::Case { branches: vec![(is_null, null)], otherwise: Box::new(json) }
}

impl<'t> Sources<'t> {
    pub(crate) fn one(stream: Source<'t>) -> Self {
        Self { stream, joined: None }
    }

    pub(crate) fn two(stream: Source<'t>, joined: Source<'t>) -> Self {
        Self { stream, joined: Some(joined) }
    }

    /// Resolves a column name, optionally qualified by its table.
    pub(super) fn find(
        &self,
        table: Option<&Ident>,
        column: &Ident,
    ) -> Result<Found<'t>, SqlError> {
        let name = folded(column);
        let table = table.map(folded);
        let of = |source: &Source<'t>| {
            let is_meant = table.as_ref().is_none_or(|it| it == source.alias);
            is_meant.then(|| source.table.column(&name)).flatten()
        };
        let (stream, joined) = (of(&self.stream), self.joined.as_ref().and_then(of));
        match (stream, joined) {
            (Some(column), None) => Ok(Found { column, is_joined: false }),
            (None, Some(column)) => Ok(Found { column, is_joined: true }),
            (None, None) => Err(undefined_column(&match table {
                Some(table) => format!("{table}.{name}"),
                None => name,
            })),
            (Some(_), Some(_)) => {
                let message = format!("column reference \"{name}\" is ambiguous");
                Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message))
            }
        }
    }

    pub(super) fn column(&mut self, found: &Found<'_>) -> Result<Bound, SqlError> {
        let expr = self.source(found).column(found.column)?;
        Ok(found.wrap(Bound { expr, data_type: found.column.data_type }))
    }

    /// Returns the paths of the first table.
    pub(crate) fn stream_paths(&self) -> &Paths {
        self.stream.paths
    }

    /// Binds a column of the first table.
    pub(super) fn own_column(&mut self, column: &TableColumn) -> Result<Bound, SqlError> {
        let expr = self.stream.column(column)?;
        Ok(Bound { expr, data_type: column.data_type })
    }

    /// Binds a JSON path into a column.
    pub(super) fn path(
        &mut self,
        found: &Found<'_>,
        steps: Vec<Step>,
        as_text: bool,
    ) -> Result<Bound, SqlError> {
        let bound = self.source(found).path(found.column, steps, as_text)?;
        Ok(found.wrap(bound))
    }

    pub(super) fn taken_counts(&self) -> TakenCounts {
        TakenCounts(self.stream.taken.len(), self.joined.as_ref().map_or(0, |it| it.taken.len()))
    }

    /// Releases all paths that were taken since.
    pub(super) fn give_back(&mut self, since: &TakenCounts) {
        self.stream.give_back(since.0);
        if let Some(joined) = &mut self.joined {
            joined.give_back(since.1);
        }
    }

    fn source(&mut self, found: &Found<'_>) -> &mut Source<'t> {
        match &mut self.joined {
            Some(joined) if found.is_joined => joined,
            _ => &mut self.stream,
        }
    }
}

impl Found<'_> {
    fn wrap(&self, bound: Bound) -> Bound {
        match self.is_joined {
            true => Bound { expr: Expr::Joined(Box::new(bound.expr)), ..bound },
            false => bound,
        }
    }
}
