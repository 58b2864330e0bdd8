//! Rejects syntax that the parser accepts and PostgreSQL's grammar does not, or interprets
//! differently. Runs before any rewrite.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, DuplicateTreatment, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArguments, JoinOperator, ObjectName, Query, Select, SetExpr,
    Statement, TableFactor, TableWithJoins, Visit, Visitor,
};

use super::inexact::{is_aggregate, refused};
use super::names::folded;
use super::patterns::escape_sign;
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

pub(super) fn call(name: &str, call: &Function) -> Result<(), SqlError> {
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

/// Checks where a query of WITH RECURSIVE refers to itself.
pub(super) fn recursion(query: &Query) -> Result<(), SqlError> {
    let Some(with) = query.with.as_ref().filter(|it| it.recursive) else { return Ok(()) };
    for table in &with.cte_tables {
        let SetExpr::SetOperation { right, .. } = table.query.body.as_ref() else { continue };
        let mut check = Recursion { name: folded(&table.alias.name), depth: 0 };
        if let ControlFlow::Break(what) = right.visit(&mut check) {
            let what = format!(
                "recursive reference to query {:?} must not appear within {what}",
                check.name
            );
            return Err(SqlError::new(SqlState("42P19"), what));
        }
    }
    Ok(())
}

struct Recursion {
    name: String,
    /// Nesting depth of expressions.
    depth: usize,
}

impl Recursion {
    fn is_it(&self, name: &ObjectName) -> bool {
        let [part] = name.0.as_slice() else { return false };
        part.as_ident().map(folded).as_ref() == Some(&self.name)
    }

    fn names(&self, factor: &TableFactor) -> bool {
        match factor {
            TableFactor::Table { name, .. } => self.is_it(name),
            TableFactor::NestedJoin { table_with_joins, .. } => self.joins(table_with_joins),
            _ => false,
        }
    }

    fn joins(&self, from: &TableWithJoins) -> bool {
        self.names(&from.relation) || from.joins.iter().any(|it| self.names(&it.relation))
    }

    /// Returns whether the recursive reference is on the nullable side of an outer join.
    fn is_outer(&self, from: &TableWithJoins) -> bool {
        let mut left = self.names(&from.relation);
        from.joins.iter().any(|join| {
            let right = self.names(&join.relation);
            let found = match &join.join_operator {
                JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => right,
                JoinOperator::Right(_) | JoinOperator::RightOuter(_) => left,
                JoinOperator::FullOuter(_) => left || right,
                _ => false,
            };
            left |= right;
            found
        })
    }
}

impl Visitor for Recursion {
    type Break = &'static str;

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<Self::Break> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<Self::Break> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<Self::Break> {
        match self.depth > 0 && self.is_it(name) {
            true => ControlFlow::Break("a subquery"),
            false => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Self::Break> {
        match select.from.iter().any(|it| self.is_outer(it)) {
            true => ControlFlow::Break("an outer join"),
            false => ControlFlow::Continue(()),
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
    match error.state == SqlState::UNDEFINED_COLUMN && rows.iter().any(is_row) {
        true => refused("a table name as a whole-row value"),
        false => error,
    }
}
