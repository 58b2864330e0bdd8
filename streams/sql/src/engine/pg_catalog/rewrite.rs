//! Rewrites PostgreSQL's catalogue queries for the engine, before names are resolved.
//!
//! A query over a table that is always empty is replaced by one without rows, and is not planned
//! further. Most catalogue queries (indexes, constraints, policies) are of this kind.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, BinaryOperator, CaseWhen, CastKind, DataType, Expr, Function,
    FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, JoinOperator, ObjectName,
    Query, Select, SelectItem, SetExpr, SetOperator, Statement, TableAlias, TableFactor,
    TableWithJoins, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::super::dialect::column_name;
use super::casts::{compared_letter, converted, null, plain_letter, plain_type, take, unqualify};
use super::definitions::{Definition, PG_CATALOG};
use super::elements::walk;
use super::functions::searched;
use super::object_names::{called, folded, last_part, show_names};
use super::rows::rows_of;
use super::table_oids;
use super::viewer::switch;
use super::wildcards;

const AGGREGATES: &[&str] = &[
    "array_agg",
    "avg",
    "bool_and",
    "bool_or",
    "count",
    "every",
    "json_agg",
    "json_object_agg",
    "max",
    "min",
    "string_agg",
    "sum",
];

/// Array columns that are NULL in all rows of tables that have rows.
const ALWAYS_NULL: &[&str] = &["reloptions", "attoptions", "datacl", "nspacl", "relacl"];

/// Functions of the session that clients call in FROM.
const OF_SESSION: &[&str] = &[
    "current_database",
    "current_schema",
    "current_setting",
    "pg_backend_pid",
    "pg_is_in_recovery",
    "set_config",
    "version",
];

/// Collations that match the engine's order, or whose order is irrelevant.
const COLLATIONS: &[&str] = &["C", "POSIX", "default", "ucs_basic"];

/// Rewrites a statement in place.
pub(crate) fn rewrite(statement: &mut Statement) {
    if let Statement::Query(query) = statement {
        show_names(query);
    }
    let ControlFlow::Continue(()) = statement.visit(&mut Rewriter);
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = std::convert::Infallible;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        walk(select);
        wildcards::qualify(select);
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && is_table_oid(expr)
            {
                let alias = Ident::with_quote('"', column_name(expr));
                *item = SelectItem::ExprWithAlias { expr: take(expr), alias };
            }
        }
        table_oids::replace(select, system_table);
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && is_of_catalog(expr)
            {
                let alias = Ident::with_quote('"', column_name(expr));
                let expr = std::mem::replace(expr, null());
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        empty(select);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        // ORDER BY may refer to removed columns.
        if matches!(&*query.body, SetExpr::Select(_)) && is_empty(&query.body) {
            query.order_by = None;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        if let TableFactor::Table { name, args, .. } = factor
            && args.is_some()
        {
            unqualify(name);
            // The only table function of the catalogue that clients use.
            if name.to_string() == "pg_get_keywords" {
                *args = None;
            }
        }
        if let Some(selected) = selected(factor) {
            *factor = selected;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if let Expr::Case { operand: None, conditions, .. } = expr {
            conditions.iter_mut().for_each(without_base_type);
        }
        let (Expr::AnyOp { right, .. } | Expr::AllOp { right, .. }) = &*expr else {
            return ControlFlow::Continue(());
        };
        // Before the rewrite of subqueries, which treats them as scalar.
        if matches!(right.as_ref(), Expr::Subquery(query) if is_empty(&query.body)) {
            *expr = truth(matches!(expr, Expr::AllOp { .. }));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let rewritten = match expr {
            Expr::BinaryOp { op, left, right } => {
                compared_letter(left);
                compared_letter(right);
                if let BinaryOperator::PGCustomBinaryOperator(parts) = op
                    && let Some(plain) = operator(parts)
                {
                    *op = plain;
                }
                None
            }
            Expr::Case { operand, conditions, .. } => {
                read_truths(operand.as_deref(), conditions);
                None
            }
            Expr::Collate { expr, collation } => {
                let name = last_part(collation).unwrap_or("");
                COLLATIONS.contains(&name).then(|| take(expr))
            }
            Expr::Identifier(name) => word(name).map(|it| called(it, Vec::new())),
            Expr::Function(function) => call(function),
            Expr::Cast { expr, data_type, .. } => {
                plain_type(data_type);
                plain_letter(expr, data_type);
                converted(expr, data_type)
            }
            Expr::Subquery(query) => subquery(query),
            Expr::Exists { subquery, negated } if is_empty(&subquery.body) => Some(truth(*negated)),
            Expr::InSubquery { subquery, negated, .. } if is_empty(&subquery.body) => {
                Some(truth(*negated))
            }
            _ => None,
        };
        if let Some(rewritten) = rewritten {
            *expr = rewritten;
        }
        ControlFlow::Continue(())
    }
}

fn is_table_oid(expr: &Expr) -> bool {
    let name = match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(parts) => parts.last(),
        _ => None,
    };
    name.is_some_and(|it| it.value.eq_ignore_ascii_case("tableoid"))
}

/// Replaces the texts of truth values that a column of the catalogue is compared with in CASE.
fn read_truths(operand: Option<&Expr>, conditions: &mut [CaseWhen]) {
    let name = match operand {
        Some(Expr::Identifier(name)) => Some(name),
        Some(Expr::CompoundIdentifier(parts)) => parts.last(),
        _ => None,
    };
    if name.is_none_or(|it| !it.value.eq_ignore_ascii_case("attnotnull")) {
        return;
    }
    for when in conditions {
        if let Expr::Value(value) = &when.condition
            && let Value::SingleQuotedString(text) = &value.value
            && let Some(value) = switch(text)
        {
            when.condition = truth(value);
        }
    }
}

/// Replaces the base type of a domain, which clients look up recursively: no type is a domain.
fn without_base_type(when: &mut CaseWhen) {
    let Expr::BinaryOp { left, op: BinaryOperator::Eq, right } = &when.condition else { return };
    let is_kind = matches!(&**left, Expr::CompoundIdentifier(parts)
        if parts.last().is_some_and(|it| folded(it) == "typtype"));
    let is_domain = matches!(&**right, Expr::Value(it)
        if it.value == Value::SingleQuotedString("d".to_owned()));
    let is_recursive = matches!(&when.result, Expr::Subquery(query)
        if query.with.as_ref().is_some_and(|it| it.recursive));
    if is_kind && is_domain && is_recursive {
        when.result = Expr::Cast {
            kind: CastKind::DoubleColon,
            expr: Box::new(null()),
            data_type: DataType::Custom(ObjectName::from(vec![Ident::new("oid")]), Vec::new()),
            array: false,
            format: None,
        };
    }
}

fn truth(value: bool) -> Expr {
    Expr::Value(Value::Boolean(value).into())
}

/// Resolves qualified operators: `OPERATOR(pg_catalog.~)` is `~`.
fn operator(parts: &[String]) -> Option<BinaryOperator> {
    let [.., sign] = parts else { return None };
    Some(match sign.as_str() {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "||" => BinaryOperator::StringConcat,
        _ => return None,
    })
}

/// Returns the function that a keyword without parentheses calls.
fn word(name: &Ident) -> Option<&'static str> {
    match name.quote_style {
        None if name.value.eq_ignore_ascii_case("current_schema") => Some("current_schema"),
        None if name.value.eq_ignore_ascii_case("current_role") => Some("current_user"),
        _ => None,
    }
}

/// Returns whether the rewrite would change the name of the expression's column.
fn is_of_catalog(expr: &Expr) -> bool {
    match expr {
        Expr::Function(function) => {
            let is_changed = |it: &str| matches!(it, "array_upper" | "current_schemas");
            function.name.0.len() > 1 || last_part(&function.name).is_some_and(is_changed)
        }
        Expr::Cast { expr, data_type, .. } => {
            let is_rewritten =
                matches!(data_type, DataType::Custom(..) | DataType::Regclass | DataType::Array(_));
            is_rewritten || is_of_catalog(expr)
        }
        Expr::Collate { expr, .. } | Expr::Nested(expr) => is_of_catalog(expr),
        Expr::CompoundFieldAccess { root, .. } => is_of_catalog(root),
        Expr::Identifier(name) => word(name).is_some(),
        _ => false,
    }
}

/// Rewrites a function of the session in FROM, such as `current_schema()`, to a query of its value.
fn selected(factor: &TableFactor) -> Option<TableFactor> {
    let TableFactor::Table { name, args: Some(args), alias, with_ordinality: false, .. } = factor
    else {
        return None;
    };
    let function = name.to_string().to_ascii_lowercase();
    if !OF_SESSION.contains(&function.as_str()) {
        return None;
    }
    let column = alias.as_ref().map_or_else(|| Ident::new(&function), |it| it.name.clone());
    let args: Vec<_> = args.args.iter().map(ToString::to_string).collect();
    let text = format!("SELECT {function}({}) AS {column}", args.join(", "));
    let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text);
    let subquery = parsed.and_then(|mut it| it.parse_query()).ok()?;
    let named = || TableAlias { explicit: true, name: column, columns: Vec::new(), at: None };
    let alias = Some(alias.clone().unwrap_or_else(named));
    Some(TableFactor::Derived { lateral: false, subquery, alias, sample: None })
}

/// Returns an unnamed argument of a function.
fn argument(function: &Function, index: usize) -> Option<&Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.get(index)? {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

fn call(function: &mut Function) -> Option<Expr> {
    unqualify(&mut function.name);
    let name = last_part(&function.name).unwrap_or("").to_ascii_lowercase();
    match name.as_str() {
        "array" => match &function.args {
            FunctionArguments::Subquery(query) if is_empty(&query.body) => Some(empty_array()),
            _ => None,
        },
        "current_schemas" => {
            let is_true = matches!(argument(function, 0), Some(Expr::Value(it))
                if it.value == Value::Boolean(true));
            Some(texts(searched(is_true).into_iter().map(str::to_owned)))
        }
        "array_upper" => match argument(function, 0) {
            Some(Expr::Array(Array { elem, .. })) => {
                Some(Expr::Value(Value::Number(elem.len().to_string(), false).into()))
            }
            _ => None,
        },
        _ => None,
    }
}

fn texts(values: impl Iterator<Item = String>) -> Expr {
    let values = values.map(|it| Expr::Value(Value::SingleQuotedString(it).into()));
    Expr::Array(Array { elem: values.collect(), named: true })
}

/// Returns an empty text array, for ARRAY of a query without rows.
fn empty_array() -> Expr {
    Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(texts(std::iter::empty())),
        data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(DataType::Text), None)),
        array: false,
        format: None,
    }
}

fn single_column(select: &mut Select) -> Option<&mut Expr> {
    match select.projection.as_mut_slice() {
        [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] => Some(expr),
        _ => None,
    }
}

/// Rewrites a scalar subquery. The engine requires a guarantee of a single row, so a catalogue
/// lookup is wrapped in `max`.
fn subquery(query: &mut Query) -> Option<Expr> {
    if is_empty(&query.body) {
        return Some(null());
    }
    if query.limit_clause.is_some() {
        return None;
    }
    let SetExpr::Select(select) = &mut *query.body else { return None };
    let is_of_system = !select.from.is_empty()
        && select.from.iter().all(|it| it.joins.is_empty() && system_table(&it.relation).is_some());
    if is_of_system
        && !has_aggregate(select)
        && let Some(expr) = single_column(select)
    {
        let argument = take(expr);
        *expr = called("max", vec![argument]);
        if let Expr::Function(call) = expr {
            // Marks the call, because the single value may be a boolean, for which clients have no
            // `max`.
            call.filter = Some(Box::new(truth(true)));
        }
    }
    None
}

fn system_table(factor: &TableFactor) -> Option<&'static Definition> {
    let TableFactor::Table { name, args: None, .. } = factor else { return None };
    let parts: Option<Vec<String>> =
        name.0.iter().map(|it| it.as_ident().map(|it| it.value.to_lowercase())).collect();
    match parts?.as_slice() {
        [name] => Definition::find(PG_CATALOG, name),
        [.., schema, name] => Definition::find(schema, name),
        [] => None,
    }
}

/// Returns whether a FROM item never has rows.
fn is_without_rows(from: &TableWithJoins) -> bool {
    let mut is_none = is_factor_without_rows(&from.relation);
    for join in &from.joins {
        let right = is_factor_without_rows(&join.relation);
        is_none = match &join.join_operator {
            JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => is_none,
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) => right,
            JoinOperator::FullOuter(_) => is_none && right,
            _ => is_none || right,
        };
    }
    is_none
}

fn is_factor_without_rows(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Derived { subquery, .. } => is_empty(&subquery.body),
        TableFactor::NestedJoin { table_with_joins, .. } => is_without_rows(table_with_joins),
        TableFactor::Table { args: Some(args), .. } => {
            let column = args.args.iter().find_map(|it| match it {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundIdentifier(names))) => {
                    names.last()
                }
                _ => None,
            });
            column.is_some_and(|it| ALWAYS_NULL.contains(&it.value.as_str()))
        }
        // Queries over `pg_proc` alone get no rows.
        factor => {
            system_table(factor).is_some_and(|it| it.name == "pg_proc" || rows_of(it).is_none())
        }
    }
}

/// Returns whether a query is a result of [`empty`], or composed of such.
fn is_empty(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => {
            select.from.is_empty() && select.selection.as_ref() == Some(&truth(false))
        }
        SetExpr::Query(query) => is_empty(&query.body),
        SetExpr::SetOperation { op, left, right, .. } => match op {
            SetOperator::Union => is_empty(left) && is_empty(right),
            SetOperator::Intersect => is_empty(left) || is_empty(right),
            _ => is_empty(left),
        },
        _ => false,
    }
}

/// Replaces a SELECT from tables without rows by one with the same columns and no rows.
fn empty(select: &mut Select) {
    let is_grouped =
        matches!(&select.group_by, GroupByExpr::Expressions(list, _) if !list.is_empty());
    if !select.from.iter().any(is_without_rows) || has_aggregate(select) && !is_grouped {
        return;
    }
    let mut names: Vec<String> = Vec::new();
    for item in &select.projection {
        let name = match item {
            SelectItem::UnnamedExpr(expr) => column_name(expr),
            SelectItem::ExprWithAlias { alias, .. } => alias.value.clone(),
            _ => return,
        };
        // The engine distinguishes columns by name.
        let count = names.iter().filter(|it| it.starts_with(&name)).count();
        names.push(if count > 0 { format!("{name} {count}") } else { name });
    }
    let items = names.into_iter().map(|name| SelectItem::ExprWithAlias {
        expr: null(),
        alias: Ident::with_quote('"', name),
    });
    select.projection = items.collect();
    select.from = Vec::new();
    select.selection = Some(truth(false));
    select.group_by = GroupByExpr::Expressions(Vec::new(), Vec::new());
    (select.distinct, select.having) = (None, None);
    select.named_window = Vec::new();
}

/// Returns whether a SELECT aggregates its rows.
fn has_aggregate(select: &Select) -> bool {
    /// Searches expressions without descending into subqueries.
    struct Finder;

    impl VisitorMut for Finder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            match expr {
                Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                    *expr = null();
                    ControlFlow::Continue(())
                }
                Expr::Function(function) => {
                    if matches!(function.args, FunctionArguments::Subquery(_)) {
                        function.args = FunctionArguments::None;
                    }
                    let name = last_part(&function.name).unwrap_or("").to_ascii_lowercase();
                    let is_aggregate =
                        function.over.is_none() && AGGREGATES.contains(&name.as_str());
                    match is_aggregate {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }

    let mut projection = select.projection.clone();
    projection.visit(&mut Finder).is_break() || select.having.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> String {
        let mut statements =
            Parser::parse_sql(&PostgreSqlDialect {}, text).expect("good statements");
        rewrite(&mut statements[0]);
        statements[0].to_string()
    }

    #[test]
    fn what_reads_an_empty_table_has_no_rows_and_its_columns() {
        for (text, expected) in [
            (
                "SELECT i.indexrelid, c.relname AS n, i.indkey::text FROM pg_catalog.pg_index i \
                 JOIN pg_class c ON c.oid = i.indrelid ORDER BY i.indexrelid",
                "SELECT NULL AS \"indexrelid\", NULL AS \"n\", NULL AS \"indkey\" WHERE false",
            ),
            (
                "SELECT (k.x).n FROM (SELECT f(i.indkey) AS x FROM pg_index i) k",
                "SELECT NULL AS \"n\" WHERE false",
            ),
            ("SELECT a, (SELECT conname FROM pg_constraint) FROM t", "SELECT a, NULL FROM t"),
            ("SELECT ARRAY(SELECT 1 FROM pg_policy) FROM t", "SELECT ARRAY[]::TEXT[] FROM t"),
            (
                "SELECT 1 FROM t WHERE NOT EXISTS (SELECT 1 FROM pg_index)",
                "SELECT 1 FROM t WHERE true",
            ),
        ] {
            assert_eq!(rewritten(text), expected, "{text}");
        }
    }

    #[test]
    fn what_may_have_rows_stays_as_it_is() {
        for text in [
            "SELECT count(*) FROM pg_index",
            "SELECT c.relname FROM pg_class AS c LEFT JOIN pg_index AS i ON i.indrelid = c.oid",
            "SELECT indexrelid FROM other.pg_index",
            "SELECT a FROM pg_index_of_mine WHERE b = (SELECT max(c) FROM t)",
            "SELECT a FROM t WHERE b = (SELECT c FROM u)",
        ] {
            assert_eq!(rewritten(text), text);
        }
    }

    #[test]
    fn names_operators_and_casts_become_the_engines() {
        for (text, expected) in [
            (
                "SELECT 1 FROM t WHERE a OPERATOR(pg_catalog.~) '^x' COLLATE pg_catalog.default",
                "SELECT 1 FROM t WHERE a ~ '^x'",
            ),
            (
                "SELECT pg_catalog.format_type(a, NULL) FROM t",
                "SELECT format_type(a, NULL) AS \"format_type\" FROM t",
            ),
            (
                "SELECT 1 FROM t WHERE a = 'o'::regclass",
                "SELECT 1 FROM t WHERE a = regclass_oid('o')",
            ),
            (
                "SELECT c.oid::pg_catalog.regclass::pg_catalog.text FROM c",
                "SELECT regclass_text(c.oid) AS \"oid\" FROM c",
            ),
            (
                "SELECT a FROM t WHERE b = 'x'::regtype::text",
                "SELECT a FROM t WHERE b = regtype_text('x')",
            ),
            (
                "SELECT 1 FROM t WHERE a = ANY('{x,y}'::text[])",
                "SELECT 1 FROM t WHERE a = ANY(ARRAY['x'::TEXT, 'y'::TEXT])",
            ),
            (
                "SELECT a FROM t WHERE b = (SELECT oid FROM pg_namespace)",
                "SELECT a FROM t WHERE b = (SELECT max(oid) FILTER (WHERE true) FROM pg_namespace)",
            ),
            ("SELECT array_upper(current_schemas(false), 1) AS n", "SELECT 1 AS n"),
            (
                "SELECT CASE WHEN t.typtype = 'd' THEN (WITH RECURSIVE b(o) AS (SELECT \
                 t.typbasetype) SELECT o FROM b) ELSE NULL END AS n FROM pg_type t",
                "SELECT CASE WHEN t.typtype = 'd' THEN NULL::oid ELSE NULL END AS n FROM pg_type t",
            ),
            (
                "SELECT a FROM t WHERE b = CAST($1::regclass AS regclass)",
                "SELECT a FROM t WHERE b = regclass_oid($1)",
            ),
        ] {
            assert_eq!(rewritten(text), expected, "{text}");
        }
    }
}
