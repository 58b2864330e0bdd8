//! Joins: `FROM stream JOIN table ON expression = table.key`, a lookup of each record's table row.

use std::borrow::Cow;

use sqlparser::ast::{self, BinaryOperator, JoinConstraint, JoinOperator, SelectItem};

use crate::error::{RowError, SqlError, SqlState};
use crate::expr::{Binder, Expr, Source, Sources, folded, no_operator};
use crate::json::Paths;
use crate::query::compile::{From, compile_select, relation, select_of};
use crate::query::select::Query;
use crate::row::Row;
use crate::scalar::Value;
use crate::table::Table;
use crate::types::Type;

/// Names of the tables of a query, for the caller to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuerySources {
    pub table: String,
    /// Alias that qualifies columns of the table.
    pub alias: String,
    /// Name of the joined table.
    pub joined: Option<String>,
}

/// Lookup of the row of the second table that matches a record of the first.
#[derive(Debug)]
pub struct Join {
    key: Expr,
    is_left: bool,
    paths: Paths,
}

/// Parsed form of a join.
struct Written<'a> {
    stream: From,
    joined: From,
    condition: &'a ast::Expr,
    is_left: bool,
}

impl Join {
    /// Returns whether this is a left join: records without a match remain, with NULL in the joined
    /// columns.
    pub fn is_left(&self) -> bool {
        self.is_left
    }

    /// Returns the paths with which rows of the second table must be read.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Returns the key of the matching row. NULL matches no row.
    pub fn key<'a>(&'a self, row: &Row<'a>) -> Result<Option<Cow<'a, str>>, RowError> {
        Ok(match self.key.evaluate(row)? {
            Value::Text(text) => Some(text),
            _ => None,
        })
    }
}

impl Query {
    /// Returns the tables of a query: one, or one and a joined table.
    pub fn sources(query: &ast::Query) -> Result<QuerySources, SqlError> {
        let select = select_of(query)?;
        match select.from.as_slice() {
            [only] if only.joins.is_empty() => {
                let From { name, alias } = relation(&only.relation)?;
                Ok(QuerySources { table: name, alias, joined: None })
            }
            _ => {
                let Written { stream, joined, .. } = written(select)?;
                let joined = Some(joined.name);
                Ok(QuerySources { table: stream.name, alias: stream.alias, joined })
            }
        }
    }

    /// Compiles a query on records of `stream`, for each of which a row of `joined` is looked up.
    /// Paths of the stream are taken from `paths`.
    pub fn compile_join(
        query: &ast::Query,
        [stream, joined]: [&Table; 2],
        paths: &mut Paths,
    ) -> Result<(Self, Join), SqlError> {
        let select = select_of(query)?;
        let written = written(select)?;
        let mut joined_paths = Paths::new();
        let mut binder = Binder::new(Sources::two(
            Source::new(stream, &written.stream.alias, paths),
            Source::new(joined, &written.joined.alias, &mut joined_paths),
        ));
        let mut compile = || {
            let is_all = |it: &SelectItem| matches!(it, SelectItem::Wildcard(_));
            if select.projection.iter().any(is_all) {
                return Err(SqlError::not_supported("SELECT * with a join"));
            }
            let key = bind_key(&written, &mut binder)?;
            let compiled = compile_select(query, select, stream, &mut binder)?;
            match compiled.is_grouped() || compiled.is_top() {
                true => Err(SqlError::not_supported("GROUP BY and ORDER BY with a join")),
                false => Ok((key, compiled)),
            }
        };
        match compile() {
            Ok((key, compiled)) => {
                let query = Self { paths: binder.sources.stream.taken, ..compiled };
                Ok((query, Join { key, is_left: written.is_left, paths: joined_paths }))
            }
            Err(error) => {
                binder.abandon();
                Err(error)
            }
        }
    }
}

fn written(select: &ast::Select) -> Result<Written<'_>, SqlError> {
    let refused = || {
        SqlError::not_supported("a join other than between one stream and current values")
            .with_hint("FROM stream [LEFT] JOIN \"topic$current\" AS t ON … = t.key")
    };
    let [from] = select.from.as_slice() else { return Err(refused()) };
    let [join] = from.joins.as_slice() else { return Err(refused()) };
    let (constraint, is_left) = match &join.join_operator {
        JoinOperator::Join(it) | JoinOperator::Inner(it) => (it, false),
        JoinOperator::Left(it) | JoinOperator::LeftOuter(it) => (it, true),
        _ => return Err(refused()),
    };
    let JoinConstraint::On(condition) = constraint else { return Err(refused()) };
    if join.global {
        return Err(refused());
    }
    let (stream, joined) = (relation(&from.relation)?, relation(&join.relation)?);
    if stream.alias == joined.alias {
        let message = format!("table name \"{}\" specified more than once", stream.alias);
        return Err(SqlError::new(SqlState::DUPLICATE_ALIAS, message));
    }
    Ok(Written { stream, joined, condition, is_left })
}

/// Binds the expression that the table's key is compared with.
fn bind_key(written: &Written<'_>, binder: &mut Binder<'_>) -> Result<Expr, SqlError> {
    let refused = || {
        SqlError::not_supported(
            "a join condition other than equality with the key of the current values",
        )
        .with_hint("use ON … = t.key, and put other conditions into WHERE")
    };
    let is_key = |expr: &ast::Expr| match unwrapped(expr) {
        ast::Expr::CompoundIdentifier(names) => {
            let names: Vec<_> = names.iter().map(folded).collect();
            names == [written.joined.alias.as_str(), "key"]
        }
        _ => false,
    };
    let ast::Expr::BinaryOp { left, op: BinaryOperator::Eq, right } = unwrapped(written.condition)
    else {
        return Err(refused());
    };
    let other = match (is_key(left), is_key(right)) {
        (true, false) => right,
        (false, true) => left,
        _ => return Err(refused()),
    };
    let bound = binder.bind(other)?.decided();
    if bound.expr.reads_joined() {
        return Err(refused());
    }
    match bound.data_type {
        Type::Text => Ok(bound.expr),
        other => Err(no_operator(other, "=", Type::Text)),
    }
}

fn unwrapped(mut expr: &ast::Expr) -> &ast::Expr {
    while let ast::Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}
