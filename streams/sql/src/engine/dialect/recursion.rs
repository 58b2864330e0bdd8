//! WITH RECURSIVE: types of its first term, and forms that PostgreSQL rejects, with its errors.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Cte, DataType, Expr, JoinOperator, ObjectName, Query, Select, SelectItem, SetExpr, SetOperator,
    TableFactor, TableWithJoins, Value, ValueWithSpan, Visit, Visitor, With,
};

use super::inexact::is_aggregate;
use super::names::folded;
use super::rewrites::cast_to;
use crate::error::{SqlError, SqlState};

/// Checks where a query of WITH RECURSIVE refers to itself.
pub(super) fn recursion(query: &Query) -> Result<(), SqlError> {
    let Some(with) = query.with.as_ref().filter(|it| it.recursive) else { return Ok(()) };
    for (index, table) in with.cte_tables.iter().enumerate() {
        check_order(with, index)?;
        check_form(table)?;
    }
    Ok(())
}

/// Types NULL as text in the non-recursive term of a recursive query.
pub(super) fn type_recursion(query: &mut Query) {
    let Some(with) = query.with.as_mut().filter(|it| it.recursive) else { return };
    for table in &mut with.cte_tables {
        if let SetExpr::SetOperation { left, .. } = table.query.body.as_mut()
            && let SetExpr::Select(select) = left.as_mut()
        {
            type_nulls(select);
        }
    }
}

fn type_nulls(select: &mut Select) {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
            && let Expr::Value(ValueWithSpan { value: Value::Null, .. }) = expr
        {
            *expr = cast_to(expr.clone(), DataType::Text);
        }
    }
}

/// Rejects queries that name one another.
fn check_order(with: &With, index: usize) -> Result<(), SqlError> {
    let table = &with.cte_tables[index];
    let own = folded(&table.alias.name);
    let later = with.cte_tables[index + 1..].iter().filter(|it| {
        count(&table.query, &folded(&it.alias.name)) > 0 && count(&it.query, &own) > 0
    });
    match later.count() {
        0 => Ok(()),
        _ => {
            let what = "mutual recursion between WITH items is not implemented";
            Err(SqlError::unsupported(what))
        }
    }
}

fn check_form(table: &Cte) -> Result<(), SqlError> {
    let name = folded(&table.alias.name);
    let wrong = |what: String| Err(SqlError::new(SqlState("42P19"), what));
    if count(&table.query, &name) == 0 {
        return Ok(());
    }
    let SetExpr::SetOperation { op: SetOperator::Union, left, right, .. } =
        table.query.body.as_ref()
    else {
        return wrong(format!(
            "recursive query {name:?} does not have the form non-recursive-term UNION [ALL] \
             recursive-term"
        ));
    };
    let place =
        |what: &str| format!("recursive reference to query {name:?} must not appear {what}");
    if count(left, &name) > 0 {
        return wrong(place("within its non-recursive term"));
    }
    for (clause, is_there) in [
        ("ORDER BY", table.query.order_by.is_some()),
        ("LIMIT", table.query.limit_clause.is_some() || table.query.fetch.is_some()),
    ] {
        if is_there {
            let what = format!("{clause} in a recursive query is not implemented");
            return Err(SqlError::unsupported(what));
        }
    }
    let mut check = Recursion { name: name.clone(), depth: 0 };
    if let ControlFlow::Break(what) = right.visit(&mut check) {
        return wrong(place(&format!("within {what}")));
    }
    if count(right, &name) > 1 {
        return wrong(place("more than once"));
    }
    match right.as_ref() {
        SetExpr::Select(select) if has_aggregate(select) => wrong(
            "aggregate functions are not allowed in a recursive query's recursive term".to_owned(),
        ),
        _ => Ok(()),
    }
}

/// Counts the tables of a name.
fn count(query: &impl Visit, name: &str) -> usize {
    struct Count<'a> {
        name: &'a str,
        found: usize,
    }

    impl Visitor for Count<'_> {
        type Break = std::convert::Infallible;

        fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<Self::Break> {
            self.found += usize::from(is_named(name, self.name));
            ControlFlow::Continue(())
        }
    }

    let mut counted = Count { name, found: 0 };
    let ControlFlow::Continue(()) = query.visit(&mut counted);
    counted.found
}

fn is_named(name: &ObjectName, sought: &str) -> bool {
    let [part] = name.0.as_slice() else { return false };
    part.as_ident().is_some_and(|it| folded(it) == sought)
}

/// Returns whether a SELECT itself has aggregates.
fn has_aggregate(select: &Select) -> bool {
    struct Found {
        depth: usize,
    }

    impl Visitor for Found {
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
            match expr {
                Expr::Function(call)
                    if self.depth == 0
                        && call.over.is_none()
                        && is_aggregate(&call.name.to_string()) =>
                {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }

    let mut found = Found { depth: 0 };
    select.projection.visit(&mut found).is_break() || select.having.visit(&mut found).is_break()
}

struct Recursion {
    name: String,
    /// Nesting depth of expressions.
    depth: usize,
}

impl Recursion {
    fn is_it(&self, name: &ObjectName) -> bool {
        is_named(name, &self.name)
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
