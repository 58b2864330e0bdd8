//! Rejects names, types, literals and operators that the engine accepts although PostgreSQL lacks
//! them or gives them a different meaning. Runs before any rewrite.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::execution::context::SessionState;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, CastKind, DataType, Expr, FunctionArg, FunctionArgExpr,
    FunctionArguments, Join, JoinConstraint, JoinOperator, Query, Select, SelectItem, SetExpr,
    Statement, TableFactor, Value, Visit, Visitor,
};

use super::jsonb_paths;
use super::loose;
use super::names::folded;
use super::recursion::recursion;
use super::refusal::refused;
use super::written::text_of;
use crate::engine::errors::missing_function;
use crate::error::{SqlError, SqlState};

/// Functions whose results equal PostgreSQL's, one per line.
const EXACT: &str = include_str!("functions.txt");

/// Internal functions, which statements must not call.
const INTERNAL: &[&str] = &[
    "arrays_contain",
    "arrays_overlap",
    "average",
    "averaged_sum",
    "bytes_escaped",
    "bytes_of_hex",
    "bytes_unescaped",
    "described_as",
    "elements_of",
    "equals_any",
    "interval_over",
    "interval_times",
    "is_like",
    "json_exists",
    "json_get",
    "json_get_text",
    "json_line_of",
    "json_of_row",
    "json_of_pairs",
    "json_pair",
    "jsonb_concatenated",
    "jsonb_contains_jsonb",
    "jsonb_grouped",
    "jsonb_has_all",
    "jsonb_has_any",
    "jsonb_key",
    "jsonb_list",
    "jsonb_of_pairs",
    "jsonb_pair",
    "jsonb_without",
    "jsonb_without_path",
    "part_of_expression",
    "pattern",
    "pattern_of_both_cases",
    "regexp_matches_of",
    "regexp_pieces_of",
    "rounded_time",
    "scale_of",
    "series_of",
    "most_of_values",
    "one_or_more_of",
    "ordinals_of",
    "textout",
    "unary_plus",
    "value_at_part",
    "value_between_parts",
    "value_to_sort",
];

/// Types that PostgreSQL lacks without extensions.
const NO_TYPES: &[&str] = &[
    "BLOB",
    "BYTES",
    "DATETIME",
    "DOUBLE",
    "FIXEDSTRING",
    "HUGEINT",
    "LONGTEXT",
    "MEDIUMINT",
    "MEDIUMTEXT",
    "NVARCHAR",
    "STRING",
    "TINYINT",
    "TINYTEXT",
    "UBIGINT",
    "UHUGEINT",
    "UNSIGNED",
    "USMALLINT",
    "UTINYINT",
];

/// Returns whether a query selects `*` from a join on common column names.
fn is_wild(select: &Select, is_asked: fn(&JoinConstraint) -> bool) -> bool {
    let is_named = |it: &Join| match &it.join_operator {
        JoinOperator::Join(it)
        | JoinOperator::Inner(it)
        | JoinOperator::Left(it)
        | JoinOperator::LeftOuter(it)
        | JoinOperator::Right(it)
        | JoinOperator::RightOuter(it)
        | JoinOperator::FullOuter(it) => is_asked(it),
        _ => false,
    };
    select.projection.iter().any(|it| matches!(it, SelectItem::Wildcard(_)))
        && select.from.iter().flat_map(|it| &it.joins).any(is_named)
}

/// Names of functions that statements must not use.
#[derive(Debug)]
pub(in crate::engine) struct Unknown {
    functions: HashSet<String>,
}

impl Unknown {
    /// Collects the names from a state with all functions of the engine.
    pub(in crate::engine) fn of(state: &SessionState) -> Self {
        let exact: HashSet<&str> = EXACT.split_whitespace().collect();
        let scalars = state.scalar_functions().keys();
        let others = state.aggregate_functions().keys().chain(state.window_functions().keys());
        let all = scalars.chain(others).map(|it| it.to_lowercase());
        let inexact = all.filter(|it| !exact.contains(it.as_str()));
        let internal = INTERNAL.iter().map(|it| (*it).to_owned());
        Self { functions: inexact.chain(internal).collect() }
    }

    /// Rejects statements with unsupported names. Returns how the statement uses a join's columns.
    pub(in crate::engine) fn check(&self, statement: &Statement) -> Result<Columns, SqlError> {
        let mut check =
            Check { unknown: self, array_depth: 0, is_cast: false, columns: Columns::Named };
        match statement.visit(&mut check) {
            ControlFlow::Continue(()) => Ok(check.columns),
            ControlFlow::Break(error) => Err(error),
        }
    }
}

/// Dependence of a statement on the column order of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Columns {
    Named,
    /// `SELECT *` from a join with USING.
    Ordered,
    /// `SELECT *` from a NATURAL join.
    Natural,
}

struct Check<'a> {
    unknown: &'a Unknown,
    /// Nesting depth in array constructors.
    array_depth: usize,
    /// True if the next array constructor gets its type from a cast.
    is_cast: bool,
    columns: Columns,
}

impl Visitor for Check<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        broken(recursion(query))
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<SqlError> {
        broken(loose::factor(factor))
    }

    /// A literal after a value is parsed as an alias.
    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        if is_wild(select, |it| *it == JoinConstraint::Natural) {
            self.columns = Columns::Natural;
        } else if is_wild(select, |it| matches!(it, JoinConstraint::Using(_)))
            && self.columns == Columns::Named
        {
            self.columns = Columns::Ordered;
        }
        let is_test = |it: &SelectItem| match it {
            SelectItem::ExprWithAlias { alias, .. } => alias.quote_style == Some('\''),
            _ => false,
        };
        match select.projection.iter().any(is_test) {
            _ if select.qualify.is_some() => ControlFlow::Break(refused("QUALIFY")),
            true => {
                let error = refused("a column alias in single quotes");
                ControlFlow::Break(error.with_hint("Use AS \"name\"."))
            }
            false => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        if let Err(error) = loose::escape(expr) {
            return ControlFlow::Break(error);
        }
        let checked = match expr {
            Expr::Function(call) => {
                let name = call.name.0.last().and_then(|it| it.as_ident()).map(folded);
                let name = name.unwrap_or_default();
                let is_row = name == "row" && call.over.is_none() && has_several(&call.args);
                if is_row { Ok(()) } else { self.function(&name) }
                    .and_then(|()| loose::call(&name, call))
                    .and_then(|()| arguments(&name, &call.args))
            }
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, ..
            } => {
                self.is_cast = is_array(expr);
                match is_plain_json(expr) && !is_text_or_json(data_type) {
                    true => {
                        let what = format!("cannot cast type json to {data_type}");
                        Err(SqlError::new(SqlState::CANNOT_COERCE, what))
                    }
                    false => data_type_of(data_type),
                }
            }
            Expr::Cast { .. } => Err(syntax("TRY_CAST")),
            Expr::TypedString(typed) => data_type_of(&typed.data_type),
            Expr::BinaryOp {
                op:
                    op @ (BinaryOperator::Spaceship
                    | BinaryOperator::Xor
                    | BinaryOperator::DuckIntegerDivide
                    | BinaryOperator::MyIntegerDivide),
                ..
            } => {
                let what = format!("operator does not exist: {op}");
                Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, what))
            }
            // Nested lists in ARRAY[[…]] have no ARRAY keyword.
            Expr::Array(array) => {
                self.array_depth += 1;
                let is_typed = std::mem::take(&mut self.is_cast) || self.array_depth > 1;
                if let Err(error) = same_lengths(&array.elem) {
                    return ControlFlow::Break(error);
                }
                match array.named || self.array_depth > 1 {
                    true if array.elem.is_empty() && !is_typed => Err(no_type()),
                    true => Ok(()),
                    false => Err(syntax("[")),
                }
            }
            Expr::Dictionary(_) | Expr::Map(_) | Expr::Struct { .. } | Expr::Lambda(_) => {
                Err(syntax("{"))
            }
            Expr::Value(value) => match &value.value {
                Value::HexStringLiteral(_) => Err(refused("a bit-string literal")),
                _ => Ok(()),
            },
            other => form(other),
        };
        broken(checked)
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        if matches!(expr, Expr::Array(_)) {
            self.array_depth -= 1;
        }
        ControlFlow::Continue(())
    }
}

fn has_several(arguments: &FunctionArguments) -> bool {
    matches!(arguments, FunctionArguments::List(list) if list.args.len() > 1)
}

fn broken(checked: Result<(), SqlError>) -> ControlFlow<SqlError> {
    match checked {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

impl Check<'_> {
    fn function(&self, name: &str) -> Result<(), SqlError> {
        if name == "values" {
            return Err(refused("VALUES as an expression"));
        }
        match self.unknown.functions.contains(name) {
            true => Err(missing_function(name)),
            false => Ok(()),
        }
    }
}

/// Rejects argument forms that the engine supports and PostgreSQL does not.
fn arguments(name: &str, arguments: &FunctionArguments) -> Result<(), SqlError> {
    let list = match arguments {
        FunctionArguments::List(list) => list,
        FunctionArguments::Subquery(query) => return has_columns(&query.body),
        FunctionArguments::None => return Ok(()),
    };
    let text = |index: usize| match list.args.get(index) {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))) => text_of(expr),
        _ => None,
    };
    let none = |what: &str| Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, what));
    match (name, list.args.len()) {
        ("encode" | "decode", 2) if text(1).is_none_or(|it| !is_encoding(it)) => {
            Err(refused("encode and decode with a format other than 'hex', 'base64' and 'escape'"))
        }
        ("decode", 2) if text(1).is_some_and(|it| it.eq_ignore_ascii_case("base64")) => {
            match text(0).is_some_and(|it| it.len() % 4 == 0) {
                true => Ok(()),
                false => Err(refused(
                    "decode of base64 other than a literal whose length is a multiple of 4",
                )),
            }
        }
        ("date_trunc", 2) if text(1).is_some() => {
            let what = "function date_trunc(unknown, unknown) is not unique";
            Err(SqlError::new(SqlState("42725"), what)
                .with_hint("Write the literal as timestamp '…'."))
        }
        ("to_json" | "to_jsonb", 1) if text(0).is_some() => {
            let what = "could not determine polymorphic type because input has type unknown";
            Err(SqlError::new(SqlState::DATATYPE, what).with_hint("Write the literal as text '…'."))
        }
        (name, count) if jsonb_paths::FUNCTIONS.contains(&name) => match text(1) {
            Some(path) if count == 2 => jsonb_paths::check(path),
            _ => Err(refused(&format!("{name} other than with a value and a literal path"))),
        },
        ("date_bin", 2) => none("function date_bin with two arguments does not exist"),
        ("width_bucket", 2) => Err(refused("width_bucket of an array")),
        ("to_hex", 1) if is_null(&list.args[0]) => {
            Err(SqlError::new(SqlState("42725"), "function to_hex(unknown) is not unique"))
        }
        ("to_date", 0 | 1 | 3..) => {
            none("function to_date with arguments other than two texts does not exist")
        }
        _ => Ok(()),
    }
}

fn is_array(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_array(inner),
        other => matches!(other, Expr::Array(_)),
    }
}

/// Nested arrays must have the same length.
fn same_lengths(elements: &[Expr]) -> Result<(), SqlError> {
    let mut lengths = elements.iter().filter_map(|it| match it {
        Expr::Array(array) => Some(array.elem.len()),
        _ => None,
    });
    let first = lengths.next();
    match lengths.all(|it| Some(it) == first) {
        true => Ok(()),
        false => {
            let what = "multidimensional arrays must have array expressions with matching \
                        dimensions";
            Err(SqlError::new(SqlState("2202E"), what))
        }
    }
}

fn no_type() -> SqlError {
    SqlError::new(SqlState("42P18"), "cannot determine type of empty array")
        .with_hint("Cast it to its type, for example ARRAY[]::integer[].")
}

/// Rejects forms whose meaning in PostgreSQL differs from the engine's.
fn form(expr: &Expr) -> Result<(), SqlError> {
    match expr {
        Expr::BinaryOp {
            left,
            op:
                op @ (BinaryOperator::Question
                | BinaryOperator::QuestionAnd
                | BinaryOperator::QuestionPipe
                | BinaryOperator::AtArrow
                | BinaryOperator::ArrowAt
                | BinaryOperator::HashMinus
                | BinaryOperator::Minus),
            ..
        } if is_plain_json(left) => {
            let what = format!("operator does not exist: json {op} unknown");
            let error = SqlError::new(SqlState::UNDEFINED_FUNCTION, what);
            Err(error.with_hint("Cast to jsonb."))
        }
        Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right }
            if is_plain_json(left) || is_plain_json(right) =>
        {
            Err(refused("|| of json").with_hint("Cast to jsonb or text."))
        }
        Expr::BinaryOp { left, op: BinaryOperator::Arrow | BinaryOperator::LongArrow, right }
            if is_scalar_json(left) && !is_key(right) =>
        {
            Err(refused("subscripting a json scalar"))
        }
        Expr::Subquery(query) | Expr::InSubquery { subquery: query, .. } => {
            has_columns(&query.body)
        }
        Expr::CompoundFieldAccess { root, .. } if matches!(**root, Expr::Array(_)) => {
            Err(syntax("["))
        }
        Expr::CompoundFieldAccess { access_chain, .. } => loose::subscripts(access_chain),
        _ => Ok(()),
    }
}

fn is_null(argument: &FunctionArg) -> bool {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) = argument else {
        return false;
    };
    value.value == Value::Null
}

/// Rejects subqueries without columns where a value is required.
fn has_columns(body: &SetExpr) -> Result<(), SqlError> {
    match body {
        SetExpr::Select(select) if select.projection.is_empty() => {
            Err(SqlError::new(SqlState::SYNTAX, "subquery must return a column"))
        }
        SetExpr::Query(query) => has_columns(&query.body),
        SetExpr::SetOperation { left, .. } => has_columns(left),
        _ => Ok(()),
    }
}

/// Returns whether an expression is syntactically of type json, which has fewer casts and operators
/// than jsonb.
fn is_plain_json(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_plain_json(inner),
        Expr::Cast { data_type, .. } => *data_type == DataType::JSON,
        Expr::TypedString(typed) => typed.data_type == DataType::JSON,
        Expr::BinaryOp { left, op: BinaryOperator::Arrow | BinaryOperator::HashArrow, .. } => {
            is_plain_json(left)
        }
        _ => false,
    }
}

fn is_text_or_json(data_type: &DataType) -> bool {
    let is_text = matches!(data_type, DataType::Text | DataType::Varchar(_));
    is_text || matches!(data_type, DataType::JSON | DataType::JSONB)
}

/// Returns whether an expression is a jsonb literal with a scalar. PostgreSQL's `->` treats it as
/// an array with one element.
fn is_scalar_json(expr: &Expr) -> bool {
    let text = match expr {
        Expr::Nested(inner) => return is_scalar_json(inner),
        Expr::Cast { expr, data_type: DataType::JSONB, .. } => text_of(expr),
        Expr::TypedString(typed) if typed.data_type == DataType::JSONB => {
            match &typed.value.value {
                Value::SingleQuotedString(text) => Some(text.as_str()),
                _ => None,
            }
        }
        _ => None,
    };
    text.is_some_and(|it| is_single(it.trim_start()))
}

fn is_single(json: &str) -> bool {
    !json.starts_with(['[', '{'])
}

fn is_key(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_key(inner),
        Expr::Value(value) => matches!(value.value, Value::SingleQuotedString(_)),
        _ => false,
    }
}

fn is_encoding(name: &str) -> bool {
    ["hex", "base64", "escape"].iter().any(|it| name.eq_ignore_ascii_case(it))
}

fn syntax(near: &str) -> SqlError {
    SqlError::new(SqlState::SYNTAX, format!("syntax error at or near {near:?}"))
}

fn data_type_of(data_type: &DataType) -> Result<(), SqlError> {
    match data_type {
        DataType::Char(_) | DataType::Character(_) => {
            Err(refused("type character, which is padded with blanks,"))
        }
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => data_type_of(element),
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => {
            loose::numeric(info)
        }
        DataType::Interval { fields: None, precision: None } => Ok(()),
        DataType::Interval { .. } => Err(refused("type interval with fields or a precision")),
        DataType::DoublePrecision => Ok(()),
        other => {
            let name = other.to_string().to_uppercase();
            let word = name.split(['(', ' ']).next().unwrap_or_default();
            if NO_TYPES.contains(&word) || name.contains(" UNSIGNED") {
                let what = format!("type {:?} does not exist", word.to_lowercase());
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, what));
            }
            Ok(())
        }
    }
}
