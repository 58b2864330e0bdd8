//! Set-returning functions, implemented by list functions and the engine's `unnest`. Also
//! aggregates that build JSON arrays.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, Query, Select, SelectItem, SetExpr, TableAlias,
    TableAliasColumnDef, TableFactor, TableWithJoins, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::array_functions::FLAT;
use super::conversions::To;
use super::inexact::refused;
use super::json_functions::{
    ELEMENT_TEXTS, ELEMENTS, JSON_LINE, JSON_LIST, JSON_OF, JSONB_ELEMENT_TEXTS, JSONB_ELEMENTS,
    JSONB_KEYS, JSONB_LIST, JSONB_OF, JSONB_VALUE_TEXTS, JSONB_VALUES, KEYS, VALUE_TEXTS, VALUES,
};
use super::regex_functions::{MATCHES, PIECES};
use super::written::call;
use crate::error::SqlError;

/// A set-returning function.
struct Series {
    /// List functions for each column; `None` if the argument itself is the list.
    lists: &'static [Option<&'static str>],
    /// Column names. If empty, the function's name or alias.
    columns: &'static [&'static str],
}

const SERIES: &[(&str, Series)] = &[
    ("json_array_elements", Series { lists: &[Some(ELEMENTS)], columns: &["value"] }),
    ("jsonb_array_elements", Series { lists: &[Some(JSONB_ELEMENTS)], columns: &["value"] }),
    ("json_array_elements_text", Series { lists: &[Some(ELEMENT_TEXTS)], columns: &["value"] }),
    (
        "jsonb_array_elements_text",
        Series { lists: &[Some(JSONB_ELEMENT_TEXTS)], columns: &["value"] },
    ),
    ("json_object_keys", Series { lists: &[Some(KEYS)], columns: &[] }),
    ("jsonb_object_keys", Series { lists: &[Some(JSONB_KEYS)], columns: &[] }),
    ("json_each", Series { lists: &[Some(KEYS), Some(VALUES)], columns: &["key", "value"] }),
    (
        "jsonb_each",
        Series { lists: &[Some(JSONB_KEYS), Some(JSONB_VALUES)], columns: &["key", "value"] },
    ),
    (
        "json_each_text",
        Series { lists: &[Some(KEYS), Some(VALUE_TEXTS)], columns: &["key", "value"] },
    ),
    (
        "jsonb_each_text",
        Series { lists: &[Some(JSONB_KEYS), Some(JSONB_VALUE_TEXTS)], columns: &["key", "value"] },
    ),
    ("regexp_matches", Series { lists: &[Some(MATCHES)], columns: &[] }),
    ("regexp_split_to_table", Series { lists: &[Some(PIECES)], columns: &[] }),
    ("unnest", Series { lists: &[None], columns: &[] }),
];

/// The engine's set-returning function for numbers and times.
const GENERATED: &str = "generate_series";

fn series_of(name: &ObjectName) -> Option<(&'static str, &'static Series)> {
    let [part] = name.0.as_slice() else { return None };
    let name = &part.as_ident()?.value;
    let found = SERIES.iter().find(|(it, _)| it.eq_ignore_ascii_case(name));
    found.map(|(name, series)| (*name, series))
}

fn arguments(args: &[FunctionArg]) -> Option<Vec<Expr>> {
    let exprs = args.iter().map(|it| match it {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    exprs.collect()
}

/// Rewrites a call in the select list to `unnest`.
pub(super) fn rows_of_call(function: &Function) -> Result<Option<Expr>, SqlError> {
    let Some((name, series)) = series_of(&function.name) else { return Ok(None) };
    let FunctionArguments::List(list) = &function.args else { return Ok(None) };
    match (series.lists, arguments(&list.args)) {
        ([Some(of)], Some(given)) => Ok(Some(rows_of(of, given))),
        ([None], Some(mut given)) if given.len() == 1 => match given.remove(0) {
            // Returns rows of arrays, which are not flattened.
            Expr::Function(of) if of.name.to_string() == MATCHES => Ok(None),
            list => Ok(Some(call("unnest", vec![call(FLAT, vec![list])]))),
        },
        ([None], _) => Ok(None),
        _ => Err(refused(&format!("{name} outside of FROM"))),
    }
}

fn rows_of(list: &str, given: Vec<Expr>) -> Expr {
    let rows = call("unnest", vec![call(list, given)]);
    match list {
        // A lookup with an empty path returns the value itself, marked as JSON.
        ELEMENTS | VALUES => call("json_get", vec![rows]),
        JSONB_ELEMENTS | JSONB_VALUES => call(To::Jsonb.name(), vec![rows]),
        _ => rows,
    }
}

/// Rewrites calls in FROM to subqueries with `unnest`. References to such a table as a value are
/// replaced by its column.
pub(super) fn rows_of_tables(select: &mut Select) {
    let mut named = Vec::new();
    for from in &mut select.from {
        turn(from, &mut named);
    }
    if named.is_empty() {
        return;
    }
    let mut values = Values { named: &named };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
            && let Some(expr) = values.column(name)
        {
            *item = SelectItem::ExprWithAlias { expr, alias: name.clone() };
        }
    }
    // Names in subqueries refer to their own tables first.
    let _: ControlFlow<()> = select.projection.visit(&mut values);
    let _: ControlFlow<()> = select.selection.visit(&mut values);
    let _: ControlFlow<()> = select.group_by.visit(&mut values);
    let _: ControlFlow<()> = select.having.visit(&mut values);
    for from in &mut select.from {
        for join in &mut from.joins {
            let _: ControlFlow<()> = join.join_operator.visit(&mut values);
        }
    }
}

fn turn(from: &mut TableWithJoins, named: &mut Vec<(Ident, Ident)>) {
    turn_factor(&mut from.relation, named);
    for join in &mut from.joins {
        turn_factor(&mut join.relation, named);
    }
}

/// Returns the function, arguments and alias of a table that is a call.
fn called(factor: &mut TableFactor) -> Option<(ObjectName, Vec<Expr>, &mut Option<TableAlias>)> {
    match factor {
        TableFactor::Table { name, args: Some(args), alias, with_ordinality: false, .. } => {
            Some((name.clone(), arguments(&args.args)?, alias))
        }
        TableFactor::Function { name, args, alias, with_ordinality: false, .. } => {
            Some((name.clone(), arguments(args)?, alias))
        }
        TableFactor::UNNEST {
            alias,
            array_exprs,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality: false,
        } => Some((ObjectName::from(vec![Ident::new("unnest")]), array_exprs.clone(), alias)),
        _ => None,
    }
}

/// Names the single column of generate_series in FROM after the table.
fn name_generated(factor: &mut TableFactor, named: &mut Vec<(Ident, Ident)>) {
    let Some((name, _, alias)) = called(factor) else { return };
    if !name.to_string().eq_ignore_ascii_case(GENERATED) {
        return;
    }
    let table = alias.take().unwrap_or_else(|| TableAlias {
        explicit: true,
        name: Ident::new(GENERATED),
        columns: Vec::new(),
        at: None,
    });
    let mut columns = table.columns;
    if columns.is_empty() {
        columns.push(TableAliasColumnDef { name: table.name.clone(), data_type: None });
    }
    if let [column] = columns.as_slice() {
        named.push((table.name.clone(), column.name.clone()));
    }
    *alias = Some(TableAlias { columns, ..table });
}

fn turn_factor(factor: &mut TableFactor, named: &mut Vec<(Ident, Ident)>) {
    if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
        return turn(table_with_joins, named);
    }
    name_generated(factor, named);
    let Some((name, given, alias)) = called(factor) else { return };
    let Some((name, series)) = series_of(&name) else { return };
    // With several lists, the alias names all columns.
    if series.lists == [None] && given.len() != 1 {
        return;
    }
    let (alias, columns) = match alias.take() {
        Some(alias) => (alias.name, alias.columns),
        None => (Ident::new(name), Vec::new()),
    };
    let columns: Vec<Ident> = match (columns.is_empty(), series.columns) {
        (false, _) => columns.into_iter().map(|it| it.name).collect(),
        (true, []) => vec![alias.clone()],
        (true, columns) => columns.iter().map(|it| Ident::new(*it)).collect(),
    };
    if let [column] = columns.as_slice() {
        named.push((alias.clone(), column.clone()));
    }
    let lists = series.lists.iter().enumerate().map(|(index, list)| {
        let expr = match list {
            Some(list) => rows_of(list, given.clone()),
            None => call("unnest", vec![call(FLAT, vec![given[0].clone()])]),
        };
        // Renamed by the alias. Until then, names must be unique.
        let alias = Ident::with_quote('"', format!("column {index}"));
        SelectItem::ExprWithAlias { expr, alias }
    });
    let Some(query) = query_of(lists.collect()) else { return };
    let columns = columns.into_iter().map(|name| TableAliasColumnDef { name, data_type: None });
    let alias = TableAlias { explicit: true, name: alias, columns: columns.collect(), at: None };
    *factor = TableFactor::Derived {
        lateral: true,
        subquery: Box::new(query),
        alias: Some(alias),
        sample: None,
    };
}

/// Returns a `SELECT` of these items without FROM.
fn query_of(items: Vec<SelectItem>) -> Option<Query> {
    let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql("SELECT 1");
    let mut query = *parser.and_then(|mut it| it.parse_query()).ok()?;
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    select.projection = items;
    Some(query)
}

/// Replaces names of single-column tables by the column.
struct Values<'a> {
    named: &'a [(Ident, Ident)],
}

impl Values<'_> {
    fn column(&self, name: &Ident) -> Option<Expr> {
        let folded = |it: &Ident| match it.quote_style {
            Some(_) => it.value.clone(),
            None => it.value.to_ascii_lowercase(),
        };
        let (table, column) = self.named.iter().find(|(it, _)| folded(it) == folded(name))?;
        Some(Expr::CompoundIdentifier(vec![table.clone(), column.clone()]))
    }
}

impl VisitorMut for Values<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr
            && let Some(column) = self.column(name)
        {
            *expr = column;
        }
        ControlFlow::Continue(())
    }
}

/// Rewrites an aggregate that builds a JSON array to a function of `array_agg`.
pub(super) fn json_of_rows(function: &Function) -> Result<Option<Expr>, SqlError> {
    let name = function.name.to_string().to_ascii_lowercase();
    let (of, list_of) = match name.as_str() {
        "json_agg" => (JSON_OF, JSON_LIST),
        "jsonb_agg" => (JSONB_OF, JSONB_LIST),
        _ => return Ok(None),
    };
    let FunctionArguments::List(list) = &function.args else { return Ok(None) };
    if function.over.is_some() {
        return Err(refused(&format!("{name} over a window")));
    }
    if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
        return Err(refused(&format!("{name} with DISTINCT")));
    }
    let given = arguments(&list.args);
    let (Some([one]), true) = (given.as_deref(), function.within_group.is_empty()) else {
        return Ok(None);
    };
    let is_line = |it: &Function| it.name.to_string() == JSON_LINE;
    let value = match one {
        Expr::Function(row) if is_line(row) => one.clone(),
        _ => call(of, vec![one.clone()]),
    };
    let value = FunctionArg::Unnamed(FunctionArgExpr::Expr(value));
    let args = FunctionArgumentList { args: vec![value], ..list.clone() };
    let values = Function {
        name: ObjectName::from(vec![Ident::new("array_agg")]),
        args: FunctionArguments::List(args),
        ..function.clone()
    };
    Ok(Some(call(list_of, vec![Expr::Function(values)])))
}
