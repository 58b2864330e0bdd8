//! Rejects syntax that the parser accepts and PostgreSQL's grammar does not, or interprets
//! differently. Runs before any rewrite.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, DuplicateTreatment, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, Statement, Subscript, TableFactor, Visit, Visitor,
};

use super::inexact::is_aggregate;
use super::names::folded;
use super::patterns::escape_sign;
use super::refusal::refused;
use crate::error::{SqlError, SqlState};

/// Maximum number of array dimensions in PostgreSQL.
const SUBSCRIPT_COUNT_MAX: usize = 6;

/// Maximum precision of a numeric in this server.
const NUMERIC_DIGITS_MAX: u64 = 38;

pub(super) fn factor(factor: &TableFactor) -> Result<(), SqlError> {
    match factor {
        TableFactor::Derived { alias: None, .. } => {
            let error = SqlError::new(SqlState::SYNTAX, "subquery in FROM must have an alias");
            Err(error.with_hint("For example, FROM (SELECT …) AS name."))
        }
        TableFactor::NestedJoin { alias: Some(_), .. } => Err(refused("an alias for a join")),
        _ => Ok(()),
    }
}

/// Validates the ESCAPE character of SIMILAR TO.
pub(super) fn escape(expr: &Expr) -> Result<(), SqlError> {
    let Expr::SimilarTo { escape_char: Some(sign), .. } = expr else { return Ok(()) };
    let Some(sign) = sign.value.clone().into_string() else {
        return Err(refused("ESCAPE with anything but a string literal"));
    };
    escape_sign(&sign)?;
    match sign.as_str() {
        "%" | "_" => Err(refused("ESCAPE with a character that has a meaning in patterns")),
        _ => Ok(()),
    }
}

pub(super) fn subscripts(chain: &[AccessExpr]) -> Result<(), SqlError> {
    let count = chain.iter().filter(|it| matches!(it, AccessExpr::Subscript(_))).count();
    let is_slice = |it: &AccessExpr| matches!(it, AccessExpr::Subscript(Subscript::Slice { .. }));
    // PostgreSQL cuts out of each dimension, the engine twice out of the first one.
    if (2..=SUBSCRIPT_COUNT_MAX).contains(&count) && chain.iter().any(is_slice) {
        return Err(refused("a slice of a multidimensional array"));
    }
    if count <= SUBSCRIPT_COUNT_MAX {
        return Ok(());
    }
    let what = format!(
        "number of array dimensions ({count}) exceeds the maximum allowed ({SUBSCRIPT_COUNT_MAX})"
    );
    Err(SqlError::new(SqlState::TOO_LARGE, what))
}

pub(super) fn numeric(info: &ExactNumberInfo) -> Result<(), SqlError> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok(()),
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    let has_place = u64::try_from(scale).is_ok_and(|it| it <= precision);
    if (1..=1000).contains(&precision) && (precision > NUMERIC_DIGITS_MAX || !has_place) {
        return Err(refused(&format!("numeric({precision}, {scale})")));
    }
    Ok(())
}

/// Functions that need a window.
const OF_WINDOWS: &[&str] = &[
    "cume_dist",
    "dense_rank",
    "first_value",
    "lag",
    "last_value",
    "lead",
    "nth_value",
    "ntile",
    "percent_rank",
    "rank",
    "row_number",
];

pub(super) fn call(name: &str, call: &Function) -> Result<(), SqlError> {
    if call.over.is_some() && !is_aggregate(name) && !OF_WINDOWS.contains(&name) {
        let what = format!(
            "OVER specified, but {name} is not a window function nor an aggregate function"
        );
        return Err(SqlError::new(SqlState("42809"), what));
    }
    let FunctionArguments::List(list) = &call.args else { return Ok(()) };
    let rows = |it: &FunctionArg| {
        let (FunctionArg::Unnamed(argument)
        | FunctionArg::Named { arg: argument, .. }
        | FunctionArg::ExprNamed { arg: argument, .. }) = it;
        matches!(argument, FunctionArgExpr::QualifiedWildcard(_))
    };
    if list.args.iter().any(rows) {
        return Err(refused("a whole-row reference (name.*) as an argument"));
    }
    if list.duplicate_treatment != Some(DuplicateTreatment::Distinct) || !is_aggregate(name) {
        return Ok(());
    }
    let is_argument = |key: &Expr| {
        list.args.iter().any(|it| match it {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => expr == key,
            _ => false,
        })
    };
    let keys = list.clauses.iter().filter_map(|it| match it {
        FunctionArgumentClause::OrderBy(keys) => Some(keys),
        _ => None,
    });
    match keys.flatten().all(|it| is_argument(&it.expr)) {
        true => Ok(()),
        false => {
            let what = "in an aggregate with DISTINCT, ORDER BY expressions must appear in \
                        argument list";
            Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, what))
        }
    }
}

/// Collects the names of tables in FROM, which PostgreSQL accepts as whole-row references.
pub(in crate::engine) fn names_of_rows(statement: &Statement) -> HashSet<String> {
    struct Found(HashSet<String>);

    impl Visitor for Found {
        type Break = std::convert::Infallible;

        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Self::Break> {
            let name = match factor {
                TableFactor::Table { alias: Some(alias), .. }
                | TableFactor::Derived { alias: Some(alias), .. } => Some(folded(&alias.name)),
                TableFactor::Table { name, .. } => {
                    name.0.last().and_then(|it| it.as_ident()).map(folded)
                }
                _ => None,
            };
            self.0.extend(name);
            ControlFlow::Continue(())
        }
    }

    let mut found = Found(HashSet::new());
    let ControlFlow::Continue(()) = statement.visit(&mut found);
    found.0
}

/// Replaces an error about an undefined column if the name is a whole-row reference.
pub(in crate::engine) fn of_row(error: SqlError, rows: &HashSet<String>) -> SqlError {
    let is_row = |name: &String| error.message == format!("column {name:?} does not exist");
    if error.state != SqlState::UNDEFINED_COLUMN {
        return error;
    }
    let table = error.message.strip_prefix("column ").and_then(|it| it.split_once('.'));
    match table {
        _ if rows.iter().any(is_row) => refused("a table name as a whole-row value"),
        Some((table, _)) if !table.starts_with('"') && !rows.contains(table) => {
            let what = format!("missing FROM-clause entry for table {table:?}");
            SqlError::new(SqlState::UNDEFINED_TABLE, what)
        }
        _ => error,
    }
}
