//! Limits on a statement's structure, checked before planning: for some constructs, the engine's
//! time and memory grow much faster than the text.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArguments, GroupByExpr, ObjectName, OrderByKind, Query, Select,
    Statement, Visit, Visitor,
};

use crate::error::{SqlError, SqlState};

/// Maximum number of columns of a query, and of GROUP BY and ORDER BY items, the same as in
/// PostgreSQL.
const COLUMN_COUNT_MAX: usize = 1_664;

/// Maximum number of arguments of a function, with a higher limit for functions that select one of
/// their arguments.
const ARGUMENT_COUNT_MAX: usize = 100;
const CHOICE_COUNT_MAX: usize = 1_000;
const CHOOSING: &[&str] = &["coalesce", "greatest", "least"];

const ELEMENT_COUNT_MAX: usize = 5_000;

/// Functions that the engine rewrites to CASE, in which every argument but the last occurs twice:
/// in the condition and as the result.
const COPYING: &[&str] = &["coalesce"];

/// Maximum number of parts that nested calls of such functions expand to, beyond two for each
/// written part.
const COPY_COUNT_MAX: usize = 1_000;

/// Maximum depth of casts of casts without parentheses, the same as for nested parentheses.
const CAST_DEPTH_MAX: usize = 50;

/// Maximum nesting depth of queries.
const QUERY_DEPTH_MAX: usize = 25;

/// Maximum number of tables that a statement reads, counting a WITH query at each reference.
const TABLE_COUNT_MAX: usize = 500;

/// Rejects statements that would take too long to plan.
pub(in crate::engine) fn check(statement: &Statement) -> Result<(), SqlError> {
    match statement.visit(&mut Bounds::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

#[derive(Default)]
struct Bounds {
    /// Enclosing queries, outermost first.
    queries: Vec<Level>,
    /// Sizes of the parts of each enclosing expression, outermost first.
    sizes: Vec<Size>,
}

/// Size of an expression: written parts, and parts after the engine's expansion.
#[derive(Clone, Copy, Default)]
struct Size {
    written: usize,
    made: usize,
}

/// A query being visited.
#[derive(Default)]
struct Level {
    /// Number of tables that it reads, including its subqueries.
    table_count: usize,
    /// Unvisited queries of its WITH, by address, with their names.
    to_come: Vec<(*const Query, String)>,
    /// Visible WITH names, with the number of tables that each reads.
    named: Vec<(String, usize)>,
}

impl Bounds {
    fn add(&mut self, count: usize) -> ControlFlow<SqlError> {
        let Some(level) = self.queries.last_mut() else { return ControlFlow::Continue(()) };
        level.table_count += count;
        match level.table_count > TABLE_COUNT_MAX {
            true => {
                let what = format!(
                    "statement too complex: it reads more than {TABLE_COUNT_MAX} tables, counting \
                     each reference to a WITH query"
                );
                refuse(SqlState::TOO_COMPLEX, what)
            }
            false => ControlFlow::Continue(()),
        }
    }
}

impl Visitor for Bounds {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        if self.queries.len() >= QUERY_DEPTH_MAX {
            let what = format!("queries are nested more than {QUERY_DEPTH_MAX} levels deep");
            return refuse(SqlState::TOO_COMPLEX, what);
        }
        let order_by = query.order_by.as_ref().map(|it| &it.kind);
        if let Some(OrderByKind::Expressions(list)) = order_by
            && list.len() > COLUMN_COUNT_MAX
        {
            return too_many_columns("ORDER BY");
        }
        let ctes = query.with.iter().flat_map(|with| &with.cte_tables);
        let to_come = ctes.map(|it| (&raw const *it.query, it.alias.name.value.to_lowercase()));
        self.queries.push(Level { to_come: to_come.collect(), ..Level::default() });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        let Some(level) = self.queries.pop() else { return ControlFlow::Continue(()) };
        if let Some(outer) = self.queries.last_mut()
            && let Some(index) = outer.to_come.iter().position(|it| std::ptr::eq(it.0, query))
        {
            let (_, name) = outer.to_come.swap_remove(index);
            outer.named.push((name, level.table_count));
            return ControlFlow::Continue(());
        }
        self.add(level.table_count)
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<SqlError> {
        let name = match relation.0.as_slice() {
            [name] => name.as_ident().map(|it| it.value.to_lowercase()),
            _ => None,
        };
        let named = self.queries.iter().rev().flat_map(|it| it.named.iter().rev());
        let count = named.filter(|it| Some(&it.0) == name.as_ref()).map(|it| it.1).next();
        self.add(count.unwrap_or(1).max(1))
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        if select.projection.len() > COLUMN_COUNT_MAX {
            return too_many_columns("target lists");
        }
        match &select.group_by {
            GroupByExpr::Expressions(list, _) if list.len() > COLUMN_COUNT_MAX => {
                too_many_columns("GROUP BY")
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        let Size { written, made } = self.sizes.pop().unwrap_or_default();
        let made = match expr {
            Expr::Function(function) if is_copying(function) => made.saturating_mul(2),
            _ => made,
        };
        if made > COPY_COUNT_MAX + 2 * written {
            let what = format!(
                "nested calls of {} are too complex: they expand to more than {COPY_COUNT_MAX} \
                 expressions",
                COPYING.join(", ")
            );
            return refuse(SqlState::TOO_COMPLEX, what);
        }
        if let Some(around) = self.sizes.last_mut() {
            around.written += 1 + written;
            around.made = around.made.saturating_add(1 + made);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        self.sizes.push(Size::default());
        match expr {
            Expr::Function(function) => {
                let FunctionArguments::List(list) = &function.args else {
                    return ControlFlow::Continue(());
                };
                let name = function.name.to_string().to_lowercase();
                let count_max = match CHOOSING.contains(&name.as_str()) {
                    true => CHOICE_COUNT_MAX,
                    false => ARGUMENT_COUNT_MAX,
                };
                if list.args.len() > count_max {
                    let what = format!("cannot pass more than {count_max} arguments to {name}");
                    return refuse(SqlState("54023"), what);
                }
            }
            Expr::Cast { .. } if cast_depth(expr) > CAST_DEPTH_MAX => {
                let what = format!("casts are nested more than {CAST_DEPTH_MAX} levels deep");
                return refuse(SqlState::TOO_COMPLEX, what);
            }
            Expr::Array(array) if array.elem.len() > ELEMENT_COUNT_MAX => {
                let what = format!("ARRAY can have at most {ELEMENT_COUNT_MAX} elements");
                return refuse(SqlState::TOO_COMPLEX, what);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn cast_depth(expr: &Expr) -> usize {
    let (mut inner, mut depth) = (expr, 0);
    while let Expr::Cast { expr, .. } = inner {
        (inner, depth) = (expr, depth + 1);
    }
    depth
}

fn is_copying(function: &Function) -> bool {
    let name = function.name.0.last().and_then(|it| it.as_ident());
    name.is_some_and(|it| COPYING.iter().any(|copying| it.value.eq_ignore_ascii_case(copying)))
}

fn refuse(state: SqlState, what: String) -> ControlFlow<SqlError> {
    ControlFlow::Break(SqlError::new(state, what))
}

fn too_many_columns(of: &str) -> ControlFlow<SqlError> {
    refuse(SqlState("54011"), format!("{of} can have at most {COLUMN_COUNT_MAX} entries"))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn checked(text: &str) -> Result<(), SqlError> {
        let dialect = PostgreSqlDialect {};
        let parser = Parser::new(&dialect).with_recursion_limit(200);
        let parsed = parser.try_with_sql(text).expect("words").parse_statements();
        check(&parsed.expect("a statement")[0])
    }

    /// Returns a statement with `count` WITH queries, each of which reads the previous one twice.
    fn doubling(count: usize) -> String {
        let next = |it: usize| {
            let before = it - 1;
            format!(", c{it} AS (SELECT 1 FROM c{before} a JOIN C{before} b ON true)")
        };
        let more: String = (1..=count).map(next).collect();
        format!("WITH c0 AS (SELECT 1 FROM t){more} SELECT 1 FROM c{count}")
    }

    #[test]
    fn queries_that_are_named_count_as_often_as_that() {
        checked(&doubling(8)).expect("256 tables");
        let inner = format!("SELECT ({})", doubling(9));
        let beside = format!("{0} UNION ALL SELECT 1 FROM c8", doubling(8));
        for text in [doubling(9), doubling(30), inner, beside] {
            assert_eq!(checked(&text).expect_err(&text).state, SqlState::TOO_COMPLEX);
        }
        checked("WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT 1 FROM r) SELECT 1 FROM r, r b")
            .expect("it names itself once");
    }

    #[test]
    fn lists_and_depths_have_limits() {
        let list = |count: usize| vec!["1"; count].join(",");
        let nested = |count: usize| {
            let (open, close) = ("(SELECT ".repeat(count), ")".repeat(count));
            format!("SELECT {open}1{close}")
        };
        for (good, bad, state) in [
            (list(1_664), list(1_665), "54011"),
            (format!("f({})", list(100)), format!("f({})", list(101)), "54023"),
            (format!("COALESCE({})", list(1_000)), format!("coalesce({})", list(1_001)), "54023"),
            (format!("ARRAY[{}]", list(5_000)), format!("ARRAY[{}]", list(5_001)), "54001"),
        ] {
            checked(&format!("SELECT {good}")).expect("as many as allowed");
            let error = checked(&format!("SELECT {bad}")).expect_err("one more");
            assert_eq!(error.state, SqlState(state), "{error}");
        }
        let copying = |count: usize| {
            format!("SELECT {}x{}", "coalesce(upper(".repeat(count), "), 'y')".repeat(count))
        };
        checked(&copying(7)).expect("as deep as allowed");
        assert_eq!(checked(&copying(10)).expect_err("too deep").state, SqlState::TOO_COMPLEX);
        checked(&nested(24)).expect("25 queries");
        assert_eq!(checked(&nested(25)).expect_err("26").state, SqlState::TOO_COMPLEX);
        for by in ["ORDER", "GROUP"] {
            let text = format!("SELECT 1 FROM t {by} BY {}", list(1_665));
            assert_eq!(checked(&text).expect_err(by).state, SqlState("54011"));
        }
    }
}
