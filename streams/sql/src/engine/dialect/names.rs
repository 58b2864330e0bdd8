//! Names of unnamed result columns, as PostgreSQL assigns them (`FigureColname` in its sources).
//! Equal names are made unique by a suffix after a zero byte, which is removed before clients see
//! them.

use std::collections::{HashMap, HashSet};

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::Expr as PlanExpr;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawAggregateExpr, RawWindowExpr,
};
use datafusion::sql::sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, BinaryOperator, DataType, Expr, Ident, ObjectName, Query, Select,
    SelectItem, SetExpr, TableAlias, TableAliasColumnDef, TrimWhereField,
};

use super::written::is_double;

/// Separator between a name and the suffix that makes it unique.
pub(super) const APART: char = '\0';

/// Name of a column for an expression without one.
const NO_NAME: &str = "?column?";

/// Returns a text for display, in which separators within names are replaced.
pub(in crate::engine) fn shown(text: &str) -> String {
    text.replace(APART, "#")
}

/// Assigns unique names to the columns of a SELECT.
pub(super) fn name_columns(select: &mut Select) {
    let is_wild =
        |it: &SelectItem| matches!(it, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    let has_wildcard = select.projection.iter().any(is_wild);
    let mut taken = ambiguous(select);
    let mut places = HashSet::new();
    for (index, item) in select.projection.iter_mut().enumerate() {
        let (expr, name, is_given) = match item {
            SelectItem::UnnamedExpr(expr) => {
                let (name, _) = figure(expr);
                (expr.clone(), name, false)
            }
            SelectItem::ExprWithAlias { expr, alias } => (expr.clone(), folded(alias), true),
            _ => continue,
        };
        let is_column = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
        let is_plain = is_column && !is_given;
        let is_new_place = places.insert(expr.to_string());
        // The engine distinguishes columns of different tables by their qualifiers.
        let is_apart = taken.insert(name.clone())
            || is_plain && is_new_place && matches!(expr, Expr::CompoundIdentifier(_));
        let needs_alias = !is_apart || is_plain && has_wildcard;
        let alias = match (needs_alias, is_plain || is_given) {
            (true, _) => format!("{name}{APART}{index}"),
            (false, true) => continue,
            (false, false) => name,
        };
        *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', alias) };
    }
}

/// Makes equal names of columns from several tables unique in a subquery in FROM or WITH, where the
/// qualifiers are lost.
pub(super) fn name_apart(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let last = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => names.last().map(folded),
        _ => None,
    };
    let names: Vec<_> = select.projection.iter().map(last).collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for name in names.iter().flatten() {
        *counts.entry(name).or_default() += 1;
    }
    for (index, item) in select.projection.iter_mut().enumerate() {
        let Some(name) = &names[index] else { continue };
        if counts[name.as_str()] > 1
            && let SelectItem::UnnamedExpr(expr) = item
        {
            let alias = Ident::with_quote('"', format!("{name}{APART}{index}"));
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

/// Completes an alias's column names by those of a relation, because the engine requires a name for
/// each column.
pub(super) fn name_rest(alias: &mut TableAlias, schema: &DFSchema) {
    if alias.columns.is_empty() {
        return;
    }
    let rest = schema.fields().iter().skip(alias.columns.len());
    let rest = rest.map(|it| Ident::with_quote('"', it.name()));
    alias.columns.extend(rest.map(|name| TableAliasColumnDef { name, data_type: None }));
}

/// Returns whether the expression is a column reference with this name.
pub(super) fn is_column(expr: &Expr, name: &str) -> bool {
    let column = match expr {
        Expr::Identifier(column) => Some(column),
        Expr::CompoundIdentifier(names) => names.last(),
        _ => None,
    };
    column.is_some_and(|it| folded(it) == name)
}

/// Returns the names shared by different columns, which cannot be resolved unqualified.
fn ambiguous(select: &Select) -> HashSet<String> {
    let mut exprs: HashMap<String, &Expr> = HashMap::new();
    let mut found = HashSet::new();
    for item in &select.projection {
        let (expr, name) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, figure(expr).0),
            SelectItem::ExprWithAlias { expr, alias } => (expr, folded(alias)),
            _ => continue,
        };
        let first = *exprs.entry(name.clone()).or_insert(expr);
        // The engine distinguishes columns of different tables by their qualifiers.
        if first != expr && !(is_column(first, &name) && is_column(expr, &name)) {
            found.insert(name);
        }
    }
    found
}

pub(super) fn folded(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

fn last_of(name: &ObjectName) -> String {
    let last = name.0.last().and_then(|it| it.as_ident());
    last.map_or_else(|| NO_NAME.to_owned(), folded)
}

/// Strength of a name: a cast prefers the name of its operand to that of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strength {
    None,
    OfType,
    Own,
}

/// Returns the column name of an expression.
pub(in crate::engine) fn column_name(expr: &Expr) -> String {
    figure(expr).0
}

pub(super) fn figure(expr: &Expr) -> (String, Strength) {
    let own = |name: &str| (name.to_owned(), Strength::Own);
    let weak = |name: &str| (name.to_owned(), Strength::OfType);
    match expr {
        Expr::Identifier(ident) => (folded(ident), Strength::Own),
        Expr::CompoundIdentifier(parts) => match parts.last() {
            Some(ident) => (folded(ident), Strength::Own),
            None => (NO_NAME.to_owned(), Strength::None),
        },
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => figure(inner),
        Expr::CompoundFieldAccess { root, access_chain } => match access_chain.last() {
            Some(AccessExpr::Dot(Expr::Identifier(field))) => (folded(field), Strength::Own),
            _ => figure(root),
        },
        Expr::Function(function) => (last_of(&function.name), Strength::Own),
        Expr::Cast { expr, data_type, .. } => match figure(expr) {
            named @ (_, Strength::Own) => named,
            _ => (type_name(data_type), Strength::OfType),
        },
        Expr::TypedString(typed) => (type_name(&typed.data_type), Strength::OfType),
        Expr::Interval(_) => weak("interval"),
        Expr::AtTimeZone { .. } => own("timezone"),
        Expr::Extract { .. } => own("extract"),
        Expr::Position { .. } => own("position"),
        Expr::Substring { shorthand: true, .. } => own("substr"),
        Expr::Substring { .. } => own("substring"),
        Expr::Overlay { .. } => own("overlay"),
        Expr::Ceil { .. } => own("ceil"),
        Expr::Floor { .. } => own("floor"),
        Expr::Trim { trim_where, .. } => own(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        Expr::Exists { negated: false, .. } => own("exists"),
        Expr::BinaryOp { op: BinaryOperator::Overlaps, .. } => own("overlaps"),
        Expr::Array(_) => own("array"),
        Expr::Tuple(_) => own("row"),
        Expr::GroupingSets(_) => own("grouping"),
        Expr::Case { else_result, .. } => match else_result.as_deref().map(figure) {
            Some(named @ (_, Strength::Own)) => named,
            _ => weak("case"),
        },
        Expr::Subquery(query) => (of_query(query).0, Strength::Own),
        _ => (NO_NAME.to_owned(), Strength::None),
    }
}

/// Returns the name of a subquery's column, which counts as its own even if unnamed.
fn of_query(query: &Query) -> (String, Strength) {
    let mut body = query.body.as_ref();
    while let SetExpr::SetOperation { left, .. } = body {
        body = left;
    }
    let first = match body {
        SetExpr::Select(select) => select.projection.first(),
        SetExpr::Values(_) => return ("column1".to_owned(), Strength::Own),
        _ => None,
    };
    match first {
        Some(SelectItem::UnnamedExpr(expr)) => figure(expr),
        Some(SelectItem::ExprWithAlias { alias, .. }) => (folded(alias), Strength::Own),
        _ => (NO_NAME.to_owned(), Strength::None),
    }
}

fn type_name(data_type: &DataType) -> String {
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) = data_type {
        return type_name(element);
    }
    let name = data_type.to_string().to_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    let base = name.split('(').next().unwrap_or_default().trim();
    let named = match base {
        "int" | "integer" => "int4",
        "bigint" => "int8",
        "smallint" => "int2",
        "real" => "float4",
        "float" => match name.trim_start_matches("float").trim_matches(['(', ')']).parse() {
            Ok(bits) if !is_double(bits) => "float4",
            _ => "float8",
        },
        "double precision" | "double" => "float8",
        "decimal" | "dec" => "numeric",
        "boolean" => "bool",
        "character varying" => "varchar",
        "character" | "char" => "bpchar",
        "timestamp without time zone" => "timestamp",
        "timestamp with time zone" => "timestamptz",
        "time without time zone" => "time",
        "time with time zone" => "timetz",
        other => other,
    };
    match (named, name.ends_with("with time zone")) {
        ("timestamp", true) => "timestamptz".to_owned(),
        ("time", true) => "timetz".to_owned(),
        _ => named.to_owned(),
    }
}

/// Names casts within the arguments of aggregates. The engine names an aggregate by its arguments
/// without casts, so that `max(a)` and `max(a::text)` would be the same.
#[derive(Debug)]
pub(in crate::engine) struct NameCasts;

impl ExprPlanner for NameCasts {
    fn plan_aggregate(
        &self,
        mut expr: RawAggregateExpr,
    ) -> Result<PlannerResult<RawAggregateExpr>> {
        expr.args = with_named_casts(expr.args)?;
        Ok(PlannerResult::Original(expr))
    }

    fn plan_window(&self, mut expr: RawWindowExpr) -> Result<PlannerResult<RawWindowExpr>> {
        expr.args = with_named_casts(expr.args)?;
        Ok(PlannerResult::Original(expr))
    }
}

fn with_named_casts(arguments: Vec<PlanExpr>) -> Result<Vec<PlanExpr>> {
    let named = arguments.into_iter().map(|argument| {
        let changed = argument.transform_up(|expr| match &expr {
            PlanExpr::Cast(cast) => {
                let name = format!("{}::{}", expr.schema_name(), cast.field.data_type());
                Ok(Transformed::yes(expr.alias(name)))
            }
            _ => Ok(Transformed::no(expr)),
        });
        changed.map(|it| it.data)
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::Statement;
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn names(columns: &str) -> Vec<String> {
        let text = format!("SELECT {columns} FROM t");
        let mut parsed = Parser::parse_sql(&PostgreSqlDialect {}, &text).expect("a query");
        let Some(Statement::Query(mut query)) = parsed.pop() else { panic!("{columns}") };
        let SetExpr::Select(select) = query.body.as_mut() else { panic!("{columns}") };
        name_columns(select);
        let name = |item: &SelectItem| match item {
            SelectItem::ExprWithAlias { alias, .. } => shown(&alias.value),
            other => other.to_string(),
        };
        select.projection.iter().map(name).collect()
    }

    #[test]
    fn columns_have_the_names_that_postgresql_gives_them() {
        for (columns, expected) in [
            ("1, a, t.a, upper(a)", vec!["?column?", "a", "t.a", "upper"]),
            ("a + 1, -a, a = 1", vec!["?column?#0", "?column?#1", "?column?#2"]),
            ("1::int, 1::numeric(5, 2), a::text, now()", vec!["int4", "numeric", "a", "now"]),
            ("(max(a))::bigint, timestamptz '2026-01-01'", vec!["max", "timestamptz"]),
            ("CASE WHEN a THEN b END, CASE WHEN a THEN 1 ELSE b END", vec!["case", "b"]),
            ("EXISTS (SELECT 1), (SELECT max(b) FROM u)", vec!["exists", "max"]),
            ("(SELECT 1)::text, (SELECT 1::int)::text", vec!["?column?", "int4"]),
            ("extract(day FROM a), trim(a), coalesce(a, b)", vec!["extract", "btrim", "coalesce"]),
            ("a AS x, b AS X, b AS \"X\"", vec!["x#0", "x#1", "b AS \"X\""]),
            ("a AS x, a AS x", vec!["a AS x", "x#1"]),
            ("*, a, b AS c", vec!["*", "a#1", "b AS c"]),
            ("a, a", vec!["a", "a#1"]),
        ] {
            let found = names(columns);
            let expected: Vec<_> = expected
                .iter()
                .map(|it| it.split_once(" AS ").map_or(*it, |(_, alias)| alias.trim_matches('"')))
                .collect();
            assert_eq!(found, expected, "{columns}");
        }
    }
}
