//! Row comparisons, and comparisons with each element of a list, expanded to comparisons of pairs
//! with correct NULL semantics.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query, SetExpr,
    TableFactor, TableWithJoins, UnaryOperator, Value, visit_expressions,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::set_operations::names;
use super::time_functions::OVERLAPS;
use super::written::{REPEATED_SIZE_MAX, binary, call, nested, size_of};
use crate::error::{SqlError, SqlState};

/// Alias of the rows of a subquery with which a row is compared.
const MEMBERS: &str = "members\0";

/// ANY or ALL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantifier {
    Any,
    All,
}

/// Expands a row comparison.
pub(super) fn spelled_rows(expr: &Expr) -> Result<Option<Expr>, SqlError> {
    let spelled = match expr {
        Expr::Function(_) => elements(expr).map(Expr::Tuple),
        Expr::BinaryOp { left, op, right } => match (elements(left), elements(right)) {
            (Some(left), Some(right)) => Some(compared(&left, op, &right)?),
            _ => None,
        },
        Expr::IsDistinctFrom(left, right) => match (elements(left), elements(right)) {
            (Some(left), Some(right)) => Some(distinct(&left, &right)?),
            _ => None,
        },
        Expr::IsNotDistinctFrom(left, right) => match (elements(left), elements(right)) {
            (Some(left), Some(right)) => Some(not(distinct(&left, &right)?)),
            _ => None,
        },
        Expr::IsNull(inner) => elements(inner).map(|it| {
            let tests = it.into_iter().map(|it| Expr::IsNull(Box::new(nested(it))));
            together(tests.collect(), Quantifier::All)
        }),
        Expr::IsNotNull(inner) => elements(inner).map(|it| {
            let tests = it.into_iter().map(|it| Expr::IsNotNull(Box::new(nested(it))));
            together(tests.collect(), Quantifier::All)
        }),
        Expr::InList { expr, list, negated } => match elements(expr) {
            Some(sought) => Some(row_in_list(&sought, list, *negated)?),
            None => None,
        },
        Expr::InSubquery { expr, subquery, negated } => match elements(expr) {
            Some(sought) => Some(row_in_query(&sought, subquery, *negated)?),
            None => None,
        },
        Expr::Between { expr, negated, low, high } if elements(expr).is_some() => {
            let compare = |op, other: &Expr| match (elements(expr), elements(other)) {
                (Some(left), Some(right)) => compared(&left, &op, &right),
                _ => Err(SqlError::unsupported("BETWEEN of a row and other values")),
            };
            let low = compare(BinaryOperator::GtEq, low)?;
            let high = compare(BinaryOperator::LtEq, high)?;
            let both = together(vec![low, high], Quantifier::All);
            Some(if *negated { not(both) } else { both })
        }
        _ => None,
    };
    Ok(spelled)
}

/// Expands `left op ANY (ARRAY[…])`, or ALL, over the elements of the constructor.
pub(super) fn spelled_list(
    left: &Expr,
    op: &BinaryOperator,
    list: Vec<Expr>,
    quantifier: Quantifier,
) -> Result<Expr, SqlError> {
    if list.is_empty() {
        let value = quantifier == Quantifier::All;
        return Ok(Expr::Value(Value::Boolean(value).into()));
    }
    bound(size_of(left).saturating_mul(list.len()))?;
    let comparisons =
        list.into_iter().map(|it| nested(binary(nested(left.clone()), op.clone(), nested(it))));
    Ok(together(comparisons.collect(), quantifier))
}

/// Returns whether an array depends on columns of the row.
fn is_of_row(array: &Expr) -> bool {
    let mut has_column = false;
    let walked = visit_expressions(array, |it| match it {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => {
            has_column = true;
            ControlFlow::Continue(())
        }
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } | Expr::Function(_) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    walked.is_continue() && has_column
}

/// Returns a comparison with any element of an array of the row: that not all of them fail it.
pub(super) fn unless_all(left: &Expr, operator: &BinaryOperator, array: &Expr) -> Option<Expr> {
    if !is_of_row(array) {
        return None;
    }
    let opposite = match operator {
        BinaryOperator::Eq => BinaryOperator::NotEq,
        BinaryOperator::NotEq => BinaryOperator::Eq,
        BinaryOperator::Lt => BinaryOperator::GtEq,
        BinaryOperator::GtEq => BinaryOperator::Lt,
        BinaryOperator::Gt => BinaryOperator::LtEq,
        BinaryOperator::LtEq => BinaryOperator::Gt,
        _ => return None,
    };
    let all = Expr::AllOp {
        left: Box::new(left.clone()),
        compare_op: opposite,
        right: Box::new(array.clone()),
    };
    Some(nested(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(nested(all)) }))
}

/// Returns the elements of a row constructor.
fn elements(expr: &Expr) -> Option<Vec<Expr>> {
    match expr {
        Expr::Tuple(elements) => Some(elements.clone()),
        Expr::Nested(inner) => elements(inner),
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => {
            let FunctionArguments::List(list) = &function.args else { return None };
            let elements = list.args.iter().map(|it| match it {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                _ => None,
            });
            elements.collect()
        }
        _ => None,
    }
}

fn pairs(left: &[Expr], right: &[Expr]) -> Result<Vec<(Expr, Expr)>, SqlError> {
    if left.len() != right.len() {
        return Err(SqlError::new(
            SqlState::SYNTAX,
            "unequal number of entries in row expressions",
        ));
    }
    if left.is_empty() {
        return Err(SqlError::unsupported("cannot compare rows of zero length"));
    }
    // Elements are duplicated, so nested rows would grow exponentially.
    bound(left.iter().chain(right).map(size_of).sum())?;
    let wrapped = |it: &[Expr]| it.iter().cloned().map(nested).collect::<Vec<_>>();
    Ok(wrapped(left).into_iter().zip(wrapped(right)).collect())
}

fn bound(size: usize) -> Result<(), SqlError> {
    if size <= REPEATED_SIZE_MAX {
        return Ok(());
    }
    let what = format!(
        "comparison of rows or lists too complex: {size} expressions exceed the limit of \
         {REPEATED_SIZE_MAX}"
    );
    Err(SqlError::new(SqlState::TOO_COMPLEX, what))
}

fn compared(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Result<Expr, SqlError> {
    if let (BinaryOperator::Overlaps, [_, _], [_, _]) = (op, left, right) {
        return Ok(call(OVERLAPS, [left, right].concat()));
    }
    let pairs = pairs(left, right)?;
    let each = |op: BinaryOperator| {
        pairs.iter().map(move |(left, right)| binary(left.clone(), op.clone(), right.clone()))
    };
    let strict = match op {
        BinaryOperator::Eq => return Ok(together(each(op.clone()).collect(), Quantifier::All)),
        BinaryOperator::NotEq => return Ok(together(each(op.clone()).collect(), Quantifier::Any)),
        BinaryOperator::Lt | BinaryOperator::LtEq => BinaryOperator::Lt,
        BinaryOperator::Gt | BinaryOperator::GtEq => BinaryOperator::Gt,
        other => {
            return Err(SqlError::unsupported(format!(
                "row comparison with operator {other} is not supported"
            )));
        }
    };
    // `(a, b) < (c, d)` is `a < c OR a = c AND b < d`.
    let mut reversed = pairs.iter().rev();
    let (left, right) = reversed.next().expect("a row has elements");
    let last = binary(left.clone(), op.clone(), right.clone());
    Ok(nested(reversed.fold(last, |rest, (left, right)| {
        let is_before = binary(left.clone(), strict.clone(), right.clone());
        let is_equal = binary(left.clone(), BinaryOperator::Eq, right.clone());
        let is_later = nested(binary(is_equal, BinaryOperator::And, nested(rest)));
        binary(is_before, BinaryOperator::Or, is_later)
    })))
}

fn distinct(left: &[Expr], right: &[Expr]) -> Result<Expr, SqlError> {
    let tests = pairs(left, right)?.into_iter();
    let tests = tests.map(|(left, right)| Expr::IsDistinctFrom(Box::new(left), Box::new(right)));
    Ok(together(tests.map(nested).collect(), Quantifier::Any))
}

fn row_in_list(sought: &[Expr], list: &[Expr], is_negated: bool) -> Result<Expr, SqlError> {
    let size: usize = sought.iter().map(size_of).sum();
    bound(size.saturating_mul(list.len()))?;
    let comparisons = list.iter().map(|item| match elements(item) {
        Some(item) => compared(sought, &BinaryOperator::Eq, &item),
        None => Err(SqlError::unsupported(
            "comparing a row with a value that is not a row is not supported",
        )),
    });
    let any = together(comparisons.collect::<Result<_, _>>()?, Quantifier::Any);
    Ok(if is_negated { not(any) } else { any })
}

/// Compares a row with those of a query: true, false, or NULL if unknown.
fn row_in_query(sought: &[Expr], query: &Query, is_negated: bool) -> Result<Expr, SqlError> {
    let refused = || {
        SqlError::unsupported("row comparison with IN (SELECT …) of this form is not supported")
            .with_hint("Use EXISTS (SELECT 1 FROM … WHERE …) with a comparison for each column.")
    };
    let count = names(&query.body).ok_or_else(refused)?.len();
    if count != sought.len() {
        let what = if count > sought.len() { "many" } else { "few" };
        return Err(SqlError::new(SqlState::SYNTAX, format!("subquery has too {what} columns")));
    }
    // Aggregates and subqueries would belong to another query.
    if sought.iter().any(has_call_or_query) {
        return Err(refused());
    }
    let columns: Vec<_> = (0..count).map(|it| format!("member_{it}")).collect();
    let text = format!(
        "CASE WHEN EXISTS (SELECT 1 FROM (SELECT 1) AS \"{MEMBERS}\"({0}) WHERE true) THEN true \
         WHEN EXISTS (SELECT 1 FROM (SELECT 1) AS \"{MEMBERS}\"({0}) WHERE true) \
         THEN NULL::boolean ELSE false END",
        columns.join(", ")
    );
    let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text);
    let mut found = parsed.and_then(|mut it| it.parse_expr())?;
    let member = |name: &String| {
        Expr::CompoundIdentifier(vec![Ident::with_quote('"', MEMBERS), Ident::new(name)])
    };
    let members: Vec<_> = columns.iter().map(member).collect();
    let is_equal = nested(compared(sought, &BinaryOperator::Eq, &members)?);
    let is_unknown = Expr::IsNull(Box::new(is_equal.clone()));
    let Expr::Case { conditions, .. } = &mut found else { return Err(refused()) };
    for (case, condition) in conditions.iter_mut().zip([is_equal, is_unknown]) {
        let Expr::Exists { subquery, .. } = &mut case.condition else { return Err(refused()) };
        let SetExpr::Select(select) = subquery.body.as_mut() else { return Err(refused()) };
        select.selection = Some(condition);
        let Some(TableWithJoins { relation: TableFactor::Derived { subquery, .. }, .. }) =
            select.from.first_mut()
        else {
            return Err(refused());
        };
        **subquery = query.clone();
    }
    Ok(if is_negated { not(nested(found)) } else { nested(found) })
}

fn has_call_or_query(expr: &Expr) -> bool {
    let found = visit_expressions(expr, |it| match it {
        Expr::Function(_) | Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

fn not(expr: Expr) -> Expr {
    nested(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) })
}

/// Combines parts as a balanced tree, because plans are walked recursively.
pub(super) fn together(mut parts: Vec<Expr>, quantifier: Quantifier) -> Expr {
    let op = match quantifier {
        Quantifier::Any => BinaryOperator::Or,
        Quantifier::All => BinaryOperator::And,
    };
    while parts.len() > 1 {
        let pairs = parts.chunks(2).map(|pair| match pair {
            [one, other] => nested(binary(one.clone(), op.clone(), other.clone())),
            _ => pair[0].clone(),
        });
        parts = pairs.collect();
    }
    nested(parts.pop().unwrap_or(Expr::Value(Value::Boolean(quantifier == Quantifier::All).into())))
}
