//! Rewrites PostgreSQL's catalogue queries for the engine, before names are resolved.
//!
//! A query over a table that is always empty is replaced by one without rows, and is not planned
//! further. Most catalogue queries (indexes, constraints, policies) are of this kind.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, JoinOperator, ObjectName,
    ObjectNamePart, Query, Select, SelectItem, SetExpr, SetOperator, Statement, TableFactor,
    TableWithJoins, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::super::dialect::column_name;
use super::definitions::{Definition, INFORMATION_SCHEMA, PG_CATALOG};
use super::elements::walk;
use super::functions::searched;
use super::object_names::{NAMED, called, last_part, show_names};
use super::rows::rows_of;

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
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
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

fn null() -> Expr {
    Expr::Value(Value::Null.into())
}

fn truth(value: bool) -> Expr {
    Expr::Value(Value::Boolean(value).into())
}

fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, null())
}

/// Removes the system schema from a qualified name.
fn unqualify(name: &mut ObjectName) {
    let schema = name.0.first().and_then(ObjectNamePart::as_ident);
    let is_of_system = schema.is_some_and(|it| {
        it.value.eq_ignore_ascii_case(PG_CATALOG)
            || it.value.eq_ignore_ascii_case(INFORMATION_SCHEMA)
    });
    if name.0.len() == 2 && is_of_system {
        name.0.remove(0);
    }
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

/// Removes the system schema from a type's name.
fn plain_type(data_type: &mut DataType) {
    let DataType::Custom(name, _) = data_type else { return };
    if name.0.len() < 2 {
        return;
    }
    unqualify(name);
    let text = name.to_string();
    let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text);
    if let Ok(parsed) = parsed.and_then(|mut parser| parser.parse_data_type()) {
        *data_type = parsed;
    }
}

/// Returns whether an expression is a literal such as `'r'`, which is the same as `"char"` and as
/// text.
fn is_letter(expr: &Expr) -> bool {
    let Expr::Value(value) = expr else { return false };
    match &value.value {
        Value::SingleQuotedString(text) => text.len() == 1 && text != " ",
        Value::Null => true,
        _ => false,
    }
}

/// `"char"` columns are text in this server, so casts of single letters to it become casts to text.
fn plain_letter(expr: &Expr, data_type: &mut DataType) {
    let is_type = |it: &DataType| match it {
        DataType::Custom(name, _) => name.to_string() == "\"char\"",
        _ => false,
    };
    match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(inner, _)) => {
            let Expr::Array(Array { elem, .. }) = expr else { return };
            if is_type(inner) && elem.iter().all(is_letter) {
                **inner = DataType::Text;
            }
        }
        _ if is_type(data_type) && is_letter(expr) => *data_type = DataType::Text,
        _ => {}
    }
}

/// Replaces a cast such as `'t'::char` in a comparison by a cast to text.
fn compared_letter(operand: &mut Expr) {
    if let Expr::Cast { expr, data_type, .. } = operand
        && matches!(data_type, DataType::Char(None) | DataType::Character(None))
        && is_letter(expr)
    {
        *data_type = DataType::Text;
    }
}

/// Rewrites a cast that the engine does not support.
fn converted(expr: &mut Box<Expr>, data_type: &DataType) -> Option<Expr> {
    let type_name = data_type.to_string().to_ascii_lowercase();
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(inner, _)) = data_type
        && let Expr::Value(value) = &**expr
        && let Value::SingleQuotedString(text) = &value.value
    {
        return array_literal(text, inner);
    }
    // Cast of a cast: `'orders'::regclass::text`, `oid::regclass::oid`.
    let wanted = match type_name.as_str() {
        "text" | "varchar" | "name" => Some("text"),
        "oid" => Some("oid"),
        _ => None,
    };
    if let (Some(wanted), Expr::Function(inner)) = (wanted, &mut **expr) {
        let name = last_part(&inner.name).unwrap_or("");
        let family = name.strip_suffix("_oid").or_else(|| name.strip_suffix("_text"));
        if let Some(family) = family.filter(|it| NAMED.contains(it) && *it != "regproc") {
            inner.name = ObjectName::from(vec![Ident::new(format!("{family}_{wanted}"))]);
            return Some(take(expr));
        }
    }
    if !NAMED.contains(&type_name.as_str()) {
        return None;
    }
    let is_name = matches!(&**expr, Expr::Value(it)
        if matches!(it.value, Value::SingleQuotedString(_) | Value::Placeholder(_)));
    let form = match type_name.as_str() {
        "regproc" | "regrole" => "text",
        _ if is_name => "oid",
        _ => "text",
    };
    Some(called(&format!("{type_name}_{form}"), vec![take(expr)]))
}

/// Converts an array literal such as `'{a,b}'::text[]`.
fn array_literal(text: &str, inner: &DataType) -> Option<Expr> {
    let inside = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    if inside.contains(['{', '"', '\\']) {
        return None;
    }
    let elements: Vec<_> = match inside.trim() {
        "" => Vec::new(),
        some => some.split(',').map(str::trim).collect(),
    };
    if elements.contains(&"") {
        return None;
    }
    let elements = elements.into_iter().map(|element| {
        let value = match element.eq_ignore_ascii_case("null") {
            true => Value::Null,
            false => Value::SingleQuotedString(element.to_owned()),
        };
        Expr::Cast {
            kind: CastKind::DoubleColon,
            expr: Box::new(Expr::Value(value.into())),
            data_type: inner.clone(),
            array: false,
            format: None,
        }
    });
    let elem: Vec<_> = elements.collect();
    if !elem.is_empty() {
        return Some(Expr::Array(Array { elem, named: true }));
    }
    // An empty array's type is known only from a cast.
    let element = Box::new(inner.clone());
    Some(Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(Expr::Array(Array { elem, named: true })),
        data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(element, None)),
        array: false,
        format: None,
    })
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
        ] {
            assert_eq!(rewritten(text), expected, "{text}");
        }
    }
}
