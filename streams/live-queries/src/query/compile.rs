//! Compilation of a parsed SELECT.

use std::sync::Arc;

use sqlparser::ast::{
    self, GroupByExpr, LimitClause, OrderByKind, SelectItem, SetExpr, TableFactor,
};

use crate::error::{SqlError, SqlState};
use crate::expr::{Binder, Bound, Expr, Groups, Source, Sources, folded, whole_number};
use crate::json::Paths;
use crate::limits::{COLUMNS_MAX, TOP_ROWS_MAX};
use crate::query::filter::Filter;
use crate::query::select::{OrderKey, OutputColumn, Query, Shape};
use crate::table::Table;
use crate::types::Type;

/// The table in FROM. The caller must look it up by its name to compile the query.
pub(super) struct From {
    pub(super) name: String,
    pub(super) alias: String,
}

/// An item of the SELECT list with its column name.
struct Item<'a> {
    name: String,
    expr: &'a ast::Expr,
}

impl Query {
    /// Returns the name of the table that `query` selects from.
    pub fn table_name(query: &ast::Query) -> Result<String, SqlError> {
        Ok(from(select_of(query)?)?.name)
    }

    /// Compiles `query` against `table`. Takes paths from `paths`, but none on an error.
    /// Unsupported features are rejected here, never at a record.
    pub fn compile(query: &ast::Query, table: &Table, paths: &mut Paths) -> Result<Self, SqlError> {
        let select = select_of(query)?;
        let from = from(select)?;
        let source = Source::new(table, &from.alias, paths);
        let mut binder = Binder::new(Sources::one(source));
        match compile_select(query, select, table, &mut binder) {
            Ok(compiled) => Ok(Self { paths: binder.sources.stream.taken, ..compiled }),
            Err(error) => {
                binder.abandon();
                Err(error)
            }
        }
    }
}

pub(super) fn compile_select(
    query: &ast::Query,
    select: &ast::Select,
    table: &Table,
    binder: &mut Binder<'_>,
) -> Result<Query, SqlError> {
    let condition = select.selection.as_ref().map(|it| binder.bind_condition(it, "WHERE"));
    let filter = Filter::new(condition.transpose()?, binder.sources.stream_paths());
    let filter = Arc::new(filter);
    let items = items(select, table)?;
    let is_grouped = bind_groups(select, &items, table, binder)?;
    if !is_grouped {
        // Without GROUP BY, an aggregate makes all rows one group. Otherwise the query is not
        // grouped.
        binder.groups = None;
    }
    let mut projection = bind_items(&items, table, binder);
    if !is_grouped && is_grouping_error(&projection) {
        binder.groups = Some(Groups::default());
        projection = bind_items(&items, table, binder);
    }
    let projection = projection?;
    let having = select.having.as_ref().map(|it| binder.bind_condition(it, "HAVING"));
    let having = having.transpose()?;
    let order = bind_order(query, &items, &projection, binder)?;
    let limit = limit(query)?;
    if order.is_empty() != limit.is_none() {
        return Err(SqlError::not_supported("ORDER BY without LIMIT and LIMIT without ORDER BY")
            .with_hint("use ORDER BY and LIMIT together: an unbounded result cannot be sorted"));
    }
    let names = items.iter().map(|it| it.name.clone());
    let columns = names
        .zip(&projection)
        .map(|(name, bound)| OutputColumn { name, data_type: bound.data_type });
    let columns: Vec<OutputColumn> = columns.collect();
    let identity = match (&binder.groups, table.identity.is_empty()) {
        (None, false) => table_identity(&projection, table, binder)?,
        _ => identity(&projection, binder.groups.as_ref()),
    };
    let projection = projection.into_iter().map(|it| it.expr).collect();
    let shape = match binder.groups.take() {
        Some(groups) => Shape::Groups {
            keys: groups.keys.into_iter().map(|it| it.expr).collect(),
            aggregates: groups.aggregates,
            projection,
            having,
        },
        None if having.is_some() => return Err(SqlError::not_supported("HAVING without GROUP BY")),
        None => Shape::Records { projection },
    };
    let paths = Vec::new();
    Ok(Query { columns, filter, shape, order, limit, kind: table.kind, identity, paths })
}

/// Returns the output columns that identify rows; empty if not all of them are selected.
fn identity(projection: &[Bound], groups: Option<&Groups>) -> Vec<usize> {
    let place = |wanted: &Expr| projection.iter().position(|it| it.expr == *wanted);
    match groups {
        Some(groups) => {
            let keys = (0..groups.keys.len()).map(|it| place(&Expr::Result(it)));
            keys.collect::<Option<Vec<_>>>().unwrap_or_default()
        }
        None => place(&Expr::KeyText).or_else(|| place(&Expr::KeyBytes)).into_iter().collect(),
    }
}

/// Same for a table that declares its identifying columns.
fn table_identity(
    projection: &[Bound],
    table: &Table,
    binder: &mut Binder<'_>,
) -> Result<Vec<usize>, SqlError> {
    let mut places = Vec::with_capacity(table.identity.len());
    for name in &table.identity {
        let column = table.column(name).expect("a table's identity is of its columns");
        let wanted = binder.bind_column(column)?.expr;
        match projection.iter().position(|it| it.expr == wanted) {
            Some(place) => places.push(place),
            None => return Ok(Vec::new()),
        }
    }
    Ok(places)
}

/// Compiles GROUP BY. Returns whether there is one.
fn bind_groups(
    select: &ast::Select,
    items: &[Item<'_>],
    table: &Table,
    binder: &mut Binder<'_>,
) -> Result<bool, SqlError> {
    let GroupByExpr::Expressions(keys, modifiers) = &select.group_by else {
        return Err(SqlError::not_supported("GROUP BY ALL"));
    };
    if !modifiers.is_empty() {
        return Err(SqlError::not_supported(format_args!("{}", select.group_by)));
    }
    check_count(keys.len())?;
    let mut groups = Groups::default();
    for key in keys {
        // A column of the table takes precedence over an alias, unlike in ORDER BY.
        let is_column =
            matches!(key, ast::Expr::Identifier(name) if table.column(&folded(name)).is_some());
        let key = if is_column { key } else { referred(key, items)?.unwrap_or(key) };
        let bound = binder.bind(key)?.decided();
        if bound.data_type == Type::Json {
            let message = "could not identify an equality operator for type json";
            return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message));
        }
        groups.keys.push(bound);
    }
    let is_grouped = !keys.is_empty();
    binder.groups = Some(groups);
    Ok(is_grouped)
}

fn bind_items(
    items: &[Item<'_>],
    table: &Table,
    binder: &mut Binder<'_>,
) -> Result<Vec<Bound>, SqlError> {
    let mut bound = Vec::with_capacity(items.len());
    for item in items {
        match item.expr {
            ast::Expr::Wildcard(_) => {
                if binder.groups.is_some() {
                    let message = "SELECT * cannot be grouped";
                    return Err(SqlError::new(SqlState::GROUPING, message));
                }
                let column = table.column(&item.name).expect("items list the table's columns");
                bound.push(binder.bind_column(column)?);
            }
            expr => bound.push(binder.bind(expr)?.decided()),
        }
    }
    Ok(bound)
}

/// Returns whether an aggregate was used without groups.
fn is_grouping_error<T>(result: &Result<T, SqlError>) -> bool {
    matches!(result, Err(error) if error.state == SqlState::GROUPING)
}

fn bind_order(
    query: &ast::Query,
    items: &[Item<'_>],
    projection: &[Bound],
    binder: &mut Binder<'_>,
) -> Result<Vec<OrderKey>, SqlError> {
    let Some(order) = &query.order_by else { return Ok(Vec::new()) };
    let (OrderByKind::Expressions(keys), None) = (&order.kind, &order.interpolate) else {
        return Err(SqlError::not_supported(format_args!("{order}")));
    };
    check_count(keys.len())?;
    let mut bound = Vec::with_capacity(keys.len());
    for key in keys {
        let column = match referred(&key.expr, items)? {
            Some(expr) => items.iter().position(|it| std::ptr::eq(it.expr, expr)),
            None => None,
        };
        let expr = match column {
            Some(column) => projection[column].clone(),
            None => binder.bind(&key.expr)?.decided(),
        };
        if expr.data_type == Type::Json {
            let message = "could not identify an ordering operator for type json";
            return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message));
        }
        let descending = key.options.asc == Some(false);
        let nulls_first = key.options.nulls_first.unwrap_or(descending);
        bound.push(OrderKey { expr: expr.expr, descending, nulls_first });
    }
    Ok(bound)
}

/// Resolves a position or alias in GROUP BY and ORDER BY.
fn referred<'a>(key: &ast::Expr, items: &[Item<'a>]) -> Result<Option<&'a ast::Expr>, SqlError> {
    match key {
        ast::Expr::Value(_) => {
            let position = whole_number(key, "a position in GROUP BY or ORDER BY")?;
            let item = position.checked_sub(1).and_then(|it| items.get(it));
            let item = item.filter(|it| !matches!(it.expr, ast::Expr::Wildcard(_)));
            item.map(|it| Some(it.expr)).ok_or_else(|| {
                let message = format!("position {position} is not in select list");
                SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message)
            })
        }
        ast::Expr::Identifier(name) => {
            let name = folded(name);
            let item = items.iter().find(|it| it.name == name);
            Ok(item.map(|it| it.expr).filter(|it| !matches!(it, ast::Expr::Wildcard(_))))
        }
        _ => Ok(None),
    }
}

fn items<'a>(select: &'a ast::Select, table: &Table) -> Result<Vec<Item<'a>>, SqlError> {
    /// Placeholder for a column of `*`.
    static WILDCARD: std::sync::LazyLock<ast::Expr> = std::sync::LazyLock::new(|| {
        ast::Expr::Wildcard(ast::helpers::attached_token::AttachedToken::empty())
    });
    let mut items = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::UnnamedExpr(expr) => items.push(Item { name: column_name(expr), expr }),
            SelectItem::ExprWithAlias { expr, alias } => {
                items.push(Item { name: folded(alias), expr });
            }
            SelectItem::Wildcard(options)
                if *options == ast::WildcardAdditionalOptions::default() =>
            {
                let columns = table.columns.iter();
                items.extend(columns.map(|it| Item { name: it.name.clone(), expr: &WILDCARD }));
            }
            other => return Err(SqlError::not_supported(format_args!("{other} in a SELECT list"))),
        }
    }
    check_count(items.len())?;
    if items.is_empty() {
        return Err(SqlError::not_supported("an empty SELECT list"));
    }
    Ok(items)
}

fn check_count(count: usize) -> Result<(), SqlError> {
    if count <= COLUMNS_MAX {
        return Ok(());
    }
    let message = format!("a list of a query has more than {COLUMNS_MAX} expressions");
    Err(SqlError::new(SqlState::TOO_LARGE, message))
}

/// Returns PostgreSQL's name for an expression without an alias.
fn column_name(expr: &ast::Expr) -> String {
    match expr {
        ast::Expr::Identifier(name) => folded(name),
        ast::Expr::CompoundIdentifier(names) => names.last().map(folded).unwrap_or_default(),
        ast::Expr::Nested(inner) => column_name(inner),
        ast::Expr::Cast { expr, .. } => column_name(expr),
        ast::Expr::Function(function) => function.name.to_string().to_lowercase(),
        ast::Expr::Case { .. } => "case".to_owned(),
        _ => "?column?".to_owned(),
    }
}

fn limit(query: &ast::Query) -> Result<Option<usize>, SqlError> {
    let limit = match &query.limit_clause {
        None => return Ok(None),
        Some(LimitClause::LimitOffset { limit: Some(limit), offset: None, limit_by })
            if limit_by.is_empty() =>
        {
            whole_number(limit, "LIMIT")?
        }
        Some(other) => return Err(SqlError::not_supported(format_args!("{other}"))),
    };
    match limit {
        1..=TOP_ROWS_MAX => Ok(Some(limit)),
        _ => {
            let message = format!("LIMIT of a live query must be from 1 to {TOP_ROWS_MAX}");
            Err(SqlError::new(SqlState::TOO_LARGE, message))
        }
    }
}

/// Returns the SELECT of `query`, or an error if it has clauses that live queries do not support.
pub(super) fn select_of(query: &ast::Query) -> Result<&ast::Select, SqlError> {
    let is_plain = query.with.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty()
        && query.for_clause.is_none()
        && query.settings.is_none()
        && query.format_clause.is_none()
        && query.pipe_operators.is_empty();
    let SetExpr::Select(select) = &*query.body else {
        return Err(SqlError::not_supported("queries other than SELECT … FROM … WHERE …"));
    };
    let is_plain = is_plain
        && select.distinct.is_none()
        && select.top.is_none()
        && select.exclude.is_none()
        && select.into.is_none()
        && select.lateral_views.is_empty()
        && select.prewhere.is_none()
        && select.connect_by.is_empty()
        && select.cluster_by.is_empty()
        && select.distribute_by.is_empty()
        && select.sort_by.is_empty()
        && select.named_window.is_empty()
        && select.qualify.is_none()
        && select.value_table_mode.is_none()
        && select.select_modifiers.is_none();
    if is_plain {
        return Ok(select);
    }
    Err(SqlError::not_supported("WITH, DISTINCT, FETCH, windows and locks")
        .with_hint("select from one table with WHERE, GROUP BY and ORDER BY … LIMIT"))
}

fn from(select: &ast::Select) -> Result<From, SqlError> {
    let [table] = select.from.as_slice() else {
        return Err(SqlError::not_supported("FROM with other than one table"));
    };
    if !table.joins.is_empty() {
        return Err(SqlError::not_supported("joins"));
    }
    relation(&table.relation)
}

/// Returns a table in FROM with its name and alias.
pub(super) fn relation(table: &TableFactor) -> Result<From, SqlError> {
    let TableFactor::Table {
        name, alias, args: None, with_hints, version: None, sample: None, ..
    } = table
    else {
        return Err(SqlError::not_supported(format_args!("{table} in FROM")));
    };
    let part = match name.0.as_slice() {
        [ast::ObjectNamePart::Identifier(name)] if with_hints.is_empty() => name,
        [ast::ObjectNamePart::Identifier(schema), ast::ObjectNamePart::Identifier(name)]
            if folded(schema) == "public" =>
        {
            name
        }
        _ => {
            let message = format!("relation \"{name}\" does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
        }
    };
    let name = folded(part);
    let alias = match alias {
        Some(alias) if alias.columns.is_empty() => folded(&alias.name),
        Some(_) => return Err(SqlError::not_supported("column aliases in FROM")),
        None => name.clone(),
    };
    Ok(From { name, alias })
}
