//! Rejects constructs to which the engine gives a different meaning than PostgreSQL, by name or
//! with PostgreSQL's error, before planning. Constructs that are only known after name and type
//! resolution are rejected by [`relations`](super::relations).

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, DuplicateTreatment, Expr, Fetch, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, GroupByExpr, Ident, Join, JoinConstraint,
    JoinOperator, LimitClause, NullTreatment, OrderByExpr, OrderByKind, OrderByOptions, Query,
    Select, SelectItem, SetExpr, TableFactor, TableWithJoins, UnaryOperator, Value, Visit, Visitor,
};

use super::groupings::spell_groupings;
use super::names::{figure, folded, is_column};
use super::refusal::refused;
use super::ties::keep_ties;
use crate::error::{SqlError, SqlState};

/// Checks a query without its subqueries. Rewrites `FETCH FIRST` to LIMIT.
pub(super) fn check_query(query: &mut Query) -> Result<(), SqlError> {
    if let Some(lock) = query.locks.first() {
        return Err(refused(&lock.to_string()));
    }
    take_fetch(query)?;
    let Some(order_by) = &query.order_by else { return Ok(()) };
    let OrderByKind::Expressions(keys) = &order_by.kind else {
        return Err(refused("ORDER BY ALL"));
    };
    let select = match query.body.as_ref() {
        SetExpr::Select(select) => Some(select),
        _ => None,
    };
    let is_united = matches!(query.body.as_ref(), SetExpr::SetOperation { .. });
    let outputs = select.map(|it| outputs(it)).unwrap_or_default();
    for key in keys {
        check_constant(&key.expr)?;
        match &key.expr {
            Expr::Identifier(name) => check_output("ORDER BY", name, &outputs)?,
            Expr::Value(_) => (),
            other if is_united => {
                let what = format!("ORDER BY {other} of a UNION, INTERSECT or EXCEPT");
                return Err(refused(&what));
            }
            other => check_inputs("ORDER BY", other, &outputs)?,
        }
        if let Some(select) = select {
            check_distinct(select, &key.expr)?;
        }
    }
    Ok(())
}

fn take_fetch(query: &mut Query) -> Result<(), SqlError> {
    let Some(Fetch { with_ties, percent, quantity }) = query.fetch.take() else { return Ok(()) };
    if percent {
        return Err(SqlError::new(SqlState::SYNTAX, "syntax error at or near \"PERCENT\""));
    }
    let one = || Expr::Value(Value::Number("1".to_owned(), false).into());
    let count = quantity.unwrap_or_else(one);
    if with_ties {
        return keep_ties(query, count);
    }
    match &mut query.limit_clause {
        None => {
            let limit = Some(count);
            let clause = LimitClause::LimitOffset { limit, offset: None, limit_by: Vec::new() };
            query.limit_clause = Some(clause);
        }
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = Some(count),
        Some(_) => {
            let what = "multiple LIMIT clauses not allowed";
            return Err(SqlError::new(SqlState::SYNTAX, what));
        }
    }
    Ok(())
}

fn check_constant(key: &Expr) -> Result<(), SqlError> {
    let is_place = |value: &Value| match value {
        Value::Number(text, _) => !text.contains('.'),
        Value::Placeholder(_) => true,
        _ => false,
    };
    match key {
        Expr::Value(value) if !is_place(&value.value) => {
            Err(SqlError::new(SqlState::SYNTAX, "non-integer constant in ORDER BY"))
        }
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr }
            if matches!(expr.as_ref(), Expr::Value(_)) =>
        {
            let what = format!("ORDER BY position {key} is not in select list");
            Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, what))
        }
        _ => Ok(()),
    }
}

/// An output column of a SELECT.
struct Output<'a> {
    name: String,
    expr: &'a Expr,
}

impl Output<'_> {
    /// Returns whether it is a table's column under its own name.
    fn is_input(&self) -> bool {
        is_column(self.expr, &self.name)
    }
}

fn outputs(select: &Select) -> Vec<Output<'_>> {
    let outputs = select.projection.iter().filter_map(|item| match item {
        SelectItem::UnnamedExpr(expr) => Some(Output { name: figure(expr).0, expr }),
        SelectItem::ExprWithAlias { expr, alias } => Some(Output { name: folded(alias), expr }),
        _ => None,
    });
    outputs.collect()
}

/// A name in ORDER BY must refer to a single output column.
fn check_output(clause: &str, name: &Ident, outputs: &[Output<'_>]) -> Result<(), SqlError> {
    let name = folded(name);
    let mut named = outputs.iter().filter(|it| it.name == name);
    let Some(first) = named.next() else { return Ok(()) };
    let is_one = |it: &Output<'_>| {
        bare(it.expr) == bare(first.expr)
            || it.is_input() && first.is_input() && !are_of_two_tables(it.expr, first.expr)
    };
    let others: Vec<_> = named.filter(|it| !is_one(it)).collect();
    if others.is_empty() {
        return Ok(());
    }
    // A cast to a column's own type is the column itself.
    if others.iter().all(|it| uncast(it.expr) == uncast(first.expr)) {
        let what = format!("{clause} {name:?}, the name of both a column and a cast of it,");
        return Err(refused(&what).with_hint("Give one of them another alias with AS."));
    }
    let what = format!("{clause} {name:?} is ambiguous");
    Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, what))
}

/// Returns whether both are qualified columns, of different tables.
fn are_of_two_tables(one: &Expr, other: &Expr) -> bool {
    let table = |expr: &Expr| match expr {
        Expr::CompoundIdentifier(names) => names.iter().rev().nth(1).map(folded),
        _ => None,
    };
    matches!((table(one), table(other)), (Some(one), Some(other)) if one != other)
}

/// Removes parentheses around an expression.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => bare(inner),
        other => other,
    }
}

/// Removes casts and parentheses around an expression.
fn uncast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => uncast(inner),
        other => other,
    }
}

/// Rejects names in expressions that the engine would resolve to output columns. In SQL they refer
/// to table columns.
fn check_inputs(clause: &str, expr: &Expr, outputs: &[Output<'_>]) -> Result<(), SqlError> {
    let mut names = Names::default();
    let _: ControlFlow<()> = expr.visit(&mut names);
    let is_taken = |name: &String| outputs.iter().any(|it| it.name == *name && !it.is_input());
    match names.found.iter().find(|it| is_taken(it)) {
        None => Ok(()),
        Some(name) => {
            let what = format!("using output column {name:?} in an expression in {clause}");
            Err(refused(&what).with_hint(
                "Repeat the column's expression there, and give the output column a name that no \
                 table column has.",
            ))
        }
    }
}

/// Collects unqualified names in an expression, without those in subqueries.
#[derive(Default)]
struct Names {
    depth: usize,
    found: HashSet<String>,
}

impl Visitor for Names {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let (0, Expr::Identifier(name)) = (self.depth, expr) {
            self.found.insert(folded(name));
        }
        ControlFlow::Continue(())
    }
}

fn check_distinct(select: &Select, key: &Expr) -> Result<(), SqlError> {
    let is_one = |it: &SelectItem| {
        matches!(it, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
    };
    // The engine also accepts columns that are not in the select list.
    if !matches!(select.distinct, Some(Distinct::Distinct))
        || !select.projection.iter().all(is_one)
        || matches!(key, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_))
        || outputs(select).iter().any(|it| it.expr == key)
    {
        return Ok(());
    }
    let what = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
    Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, what))
}

/// Checks a SELECT without its subqueries. Rewrites a RIGHT JOIN of two tables to a LEFT JOIN if
/// all columns are named.
pub(super) fn check_select(select: &mut Select) -> Result<(), SqlError> {
    let construct = match select {
        Select { top: Some(_), .. } => Some("TOP"),
        Select { exclude: Some(_), .. } => Some("EXCLUDE"),
        Select { into: Some(_), .. } => Some("SELECT INTO"),
        Select { group_by: GroupByExpr::All(_), .. } => Some("GROUP BY ALL"),
        _ => None,
    };
    if let Some(construct) = construct {
        return Err(refused(construct));
    }
    if let Some(Distinct::On(keys)) = &select.distinct {
        let outputs = outputs(select);
        for key in keys {
            if let Expr::Identifier(name) = key {
                check_output("DISTINCT ON", name, &outputs)?;
            }
        }
    }
    if let Some(having) = &select.having {
        check_inputs("HAVING", having, &outputs(select))?;
    }
    spell_groupings(select)?;
    turn_right_join(select);
    let mut names = HashSet::new();
    for from in &select.from {
        check_from(from, &mut names)?;
    }
    Ok(())
}

fn turn_right_join(select: &mut Select) {
    let is_wild =
        |it: &SelectItem| matches!(it, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    if select.projection.iter().any(is_wild) {
        return;
    }
    let [TableWithJoins { relation, joins }] = select.from.as_mut_slice() else { return };
    let [Join { relation: other, join_operator, .. }] = joins.as_mut_slice() else { return };
    if let JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) = join_operator
        && matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
    {
        let constraint = std::mem::replace(constraint, JoinConstraint::None);
        *join_operator = JoinOperator::Left(constraint);
        std::mem::swap(relation, other);
    }
}

/// Checks that table names are unique, and that the columns of USING come from the left side.
fn check_from(from: &TableWithJoins, names: &mut HashSet<String>) -> Result<(), SqlError> {
    check_factor(&from.relation, names)?;
    for join in &from.joins {
        check_factor(&join.relation, names)?;
        let (constraint, kind) = match &join.join_operator {
            JoinOperator::Right(it) | JoinOperator::RightOuter(it) => (it, "RIGHT JOIN"),
            JoinOperator::FullOuter(it) => (it, "FULL JOIN"),
            _ => continue,
        };
        let word = match constraint {
            JoinConstraint::Using(_) => "USING",
            JoinConstraint::Natural => "NATURAL",
            _ => continue,
        };
        return Err(refused(&format!("{kind} with {word}"))
            .with_hint("Use ON, and select coalesce(one.name, other.name) for the column."));
    }
    Ok(())
}

fn check_factor(factor: &TableFactor, names: &mut HashSet<String>) -> Result<(), SqlError> {
    let name = match factor {
        TableFactor::NestedJoin { table_with_joins, alias: None } => {
            return check_from(table_with_joins, names);
        }
        TableFactor::Table { sample: Some(_), .. }
        | TableFactor::Derived { sample: Some(_), .. } => {
            return Err(refused("TABLESAMPLE"));
        }
        TableFactor::Table { name, alias: None, .. } => {
            name.0.last().and_then(|it| it.as_ident()).map(folded)
        }
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => Some(folded(&alias.name)),
        _ => None,
    };
    match name {
        Some(name) if names.contains(&name) => {
            let what = format!("table name {name:?} specified more than once");
            Err(SqlError::new(SqlState::DUPLICATE_ALIAS, what))
        }
        Some(name) => {
            names.insert(name);
            Ok(())
        }
        None => Ok(()),
    }
}

/// Aggregates by their names in statements.
const AGGREGATES: &[&str] = &[
    "array_agg",
    "averaged_sum",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "every",
    "grouping",
    "json_agg",
    "json_object_agg",
    "jsonb_agg",
    "jsonb_object_agg",
    "max",
    "min",
    "mode",
    "percentile_cont",
    "percentile_disc",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "sum",
    "var",
    "var_pop",
    "var_samp",
    "variance",
];

pub(super) fn is_aggregate(name: &str) -> bool {
    AGGREGATES.iter().any(|it| it.eq_ignore_ascii_case(name))
}

/// Removes duplicate ORDER BY keys of aggregates, and sorts the values of DISTINCT ones.
pub(super) fn sort_values(function: &mut Function) {
    let name = function.name.to_string().to_ascii_lowercase();
    let FunctionArguments::List(list) = &mut function.args else { return };
    for clause in &mut list.clauses {
        if let FunctionArgumentClause::OrderBy(keys) = clause {
            let mut sorted = HashSet::new();
            keys.retain(|it| sorted.insert(it.expr.clone()));
        }
    }
    let is_sorted = |it: &FunctionArgumentClause| matches!(it, FunctionArgumentClause::OrderBy(_));
    if !matches!(name.as_str(), "array_agg" | "string_agg")
        || list.duplicate_treatment != Some(DuplicateTreatment::Distinct)
        || list.clauses.iter().any(is_sorted)
    {
        return;
    }
    if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))) = list.args.first() {
        let options = OrderByOptions { asc: None, nulls_first: None };
        let key = OrderByExpr { expr: expr.clone(), options, with_fill: None };
        list.clauses.push(FunctionArgumentClause::OrderBy(vec![key]));
    }
}

/// Checks a call without the calls in its arguments.
pub(super) fn check_call(function: &Function) -> Result<(), SqlError> {
    let name = function.name.to_string().to_ascii_lowercase();
    let FunctionArguments::List(list) = &function.args else { return Ok(()) };
    let is_distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    let ignores = |it: &FunctionArgumentClause| {
        matches!(it, FunctionArgumentClause::IgnoreOrRespectNulls(NullTreatment::IgnoreNulls))
    };
    if function.null_treatment == Some(NullTreatment::IgnoreNulls)
        || list.clauses.iter().any(ignores)
    {
        return Err(refused("IGNORE NULLS"));
    }
    if let ("count", []) = (name.as_str(), list.args.as_slice()) {
        let what = "count(*) must be used to call a parameterless aggregate function";
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, what));
    }
    if function.over.is_some() {
        if is_distinct {
            return Err(refused("DISTINCT for window functions"));
        }
        return check_window_call(&name, &list.args);
    }
    match (name.as_str(), list.args.as_slice()) {
        ("count", [_, _, ..]) => {
            let what = "function count with more than one argument does not exist";
            Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, what))
        }
        (_, [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]) if is_distinct => {
            Err(SqlError::new(SqlState::SYNTAX, "syntax error at or near \"*\""))
        }
        (
            "first_value" | "last_value" | "nth_value" | "lag" | "lead" | "rank" | "dense_rank"
            | "row_number" | "ntile" | "percent_rank" | "cume_dist",
            _,
        ) if function.within_group.is_empty() => {
            let what = format!("window function {name} requires an OVER clause");
            Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, what))
        }
        _ => Ok(()),
    }
}

fn check_window_call(name: &str, arguments: &[FunctionArg]) -> Result<(), SqlError> {
    let value = match arguments.get(1) {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))) => &value.value,
        _ => return Ok(()),
    };
    match (name, value) {
        ("lag" | "lead" | "nth_value", Value::Null) => {
            Err(refused(&format!("{name} with NULL as number of rows")))
        }
        ("nth_value", Value::Number(text, _)) if text == "0" => {
            let what = "argument of nth_value must be greater than zero";
            Err(SqlError::new(SqlState("22016"), what))
        }
        _ => Ok(()),
    }
}
