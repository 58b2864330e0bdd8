//! Arrays that a query iterates by subscript, with `generate_series(array_lower(list, 1), …) AS i`
//! in FROM beside the array: rewritten to `unnest`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Select, Subscript,
    TableFactor, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// Column of the elements.
const ELEMENT: &str = "element";

/// Returns a call in FROM: the function's name, arguments and alias.
fn called(factor: &TableFactor) -> Option<(String, Vec<&Expr>, &Ident)> {
    let TableFactor::Table { name, args: Some(args), alias: Some(alias), .. } = factor else {
        return None;
    };
    let args = args.args.iter().map(|it| match it {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    let ObjectName(parts) = name;
    let name = parts.last()?.as_ident()?.value.to_ascii_lowercase();
    Some((name, args.collect::<Option<_>>()?, &alias.name))
}

/// Rewrites such a SELECT in place.
pub(super) fn walk(select: &mut Select) {
    let [series, list] = select.from.as_slice() else { return };
    if !series.joins.is_empty() || !list.joins.is_empty() {
        return;
    }
    let (Some((name, bounds, index)), Some((_, _, rows))) =
        (called(&series.relation), called(&list.relation))
    else {
        return;
    };
    let TableFactor::Table { name: function, args: Some(args), .. } = &list.relation else {
        return;
    };
    let args: Vec<_> = args.args.iter().map(ToString::to_string).collect();
    let whole = format!("{function}({})", args.join(", "));
    let is_walked = name == "generate_series"
        && bounds.len() == 2
        && bounds[0].to_string() == format!("array_lower({whole}, 1)")
        && bounds[1].to_string() == format!("array_upper({whole}, 1)");
    if !is_walked {
        return;
    }
    let text = format!("SELECT unnest({whole}) AS {ELEMENT}");
    let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text);
    let Ok(query) = parsed.and_then(|mut it| it.parse_query()) else { return };
    let mut elements = Elements { list: rows.clone(), index: index.clone() };
    let mut from = list.clone();
    if let TableFactor::Table { alias, .. } = from.relation {
        from.relation =
            TableFactor::Derived { lateral: false, subquery: query, alias, sample: None };
    }
    select.from = vec![from];
    let _: ControlFlow<()> = select.projection.visit(&mut elements);
    let _: ControlFlow<()> = select.selection.visit(&mut elements);
}

struct Elements {
    list: Ident,
    index: Ident,
}

impl VisitorMut for Elements {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::CompoundFieldAccess { root, access_chain } = expr else {
            return ControlFlow::Continue(());
        };
        let [AccessExpr::Subscript(Subscript::Index { index })] = access_chain.as_slice() else {
            return ControlFlow::Continue(());
        };
        let is_it = |expr: &Expr, name: &Ident| matches!(expr, Expr::Identifier(it) if it == name);
        if is_it(root, &self.list) && is_it(index, &self.index) {
            *expr = Expr::CompoundIdentifier(vec![self.list.clone(), Ident::new(ELEMENT)]);
        }
        ControlFlow::Continue(())
    }
}
