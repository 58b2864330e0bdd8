//! Columns beside a wildcard of a subquery in FROM or WITH: `(SELECT b.x, a.* FROM …) s`. The
//! engine requires unique names, and the names of the wildcard are not known yet. So these columns
//! get names of their own, and references to them are replaced.
//!
//! PostgreSQL rejects a reference that a column of the wildcard matches too. That is not checked.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, Select, SelectItem, SetExpr, TableFactor, VisitMut, VisitorMut, With,
};

use super::names::{APART, folded};

/// A column of a table of FROM, with its own name.
struct Renamed {
    table: String,
    name: String,
    own: Ident,
}

/// Renames the columns beside wildcards of the query's subqueries and WITH, and references to them.
pub(super) fn rename(query: &mut Query) {
    let of_with = rename_with(query.with.as_mut());
    let SetExpr::Select(select) = query.body.as_mut() else {
        return rename_sides(&mut query.body, &of_with);
    };
    let renamed = rename_selected(select, &of_with);
    // A name of the result comes first in ORDER BY.
    let results = select.projection.iter().filter_map(|it| match it {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
    });
    let mut references = References { renamed, hidden: results.collect(), depth: 0 };
    let _: ControlFlow<()> = query.order_by.visit(&mut references);
}

fn rename_sides(body: &mut SetExpr, of_with: &[Renamed]) {
    match body {
        SetExpr::Select(select) => drop(rename_selected(select, of_with)),
        SetExpr::SetOperation { left, right, .. } => {
            rename_sides(left, of_with);
            rename_sides(right, of_with);
        }
        _ => {}
    }
}

/// Renames in the queries of WITH. Returns the columns by the names of the queries.
fn rename_with(with: Option<&mut With>) -> Vec<Renamed> {
    let mut renamed = Vec::new();
    for table in with.into_iter().flat_map(|it| &mut it.cte_tables) {
        if table.alias.columns.is_empty() {
            name_beside(&mut table.query, &table.alias.name, &mut renamed);
        }
    }
    renamed
}

/// Renames in the subqueries of FROM, and their references. Returns the columns.
fn rename_selected(select: &mut Select, of_with: &[Renamed]) -> Vec<Renamed> {
    let mut renamed = Vec::new();
    for from in &mut select.from {
        let joined = from.joins.iter_mut().map(|it| &mut it.relation);
        for factor in std::iter::once(&mut from.relation).chain(joined) {
            match factor {
                TableFactor::Derived { subquery, alias: Some(alias), .. }
                    if alias.columns.is_empty() =>
                {
                    name_beside(subquery, &alias.name, &mut renamed);
                }
                TableFactor::Table { name, alias, args: None, .. } => {
                    let [part] = name.0.as_slice() else { continue };
                    let Some(name) = part.as_ident().map(folded) else { continue };
                    let table = match alias {
                        Some(alias) if alias.columns.is_empty() => folded(&alias.name),
                        Some(_) => continue,
                        None => name.clone(),
                    };
                    let found = of_with.iter().filter(|it| it.table == name);
                    renamed.extend(found.map(|it| Renamed {
                        table: table.clone(),
                        name: it.name.clone(),
                        own: it.own.clone(),
                    }));
                }
                _ => {}
            }
        }
    }
    if renamed.is_empty() {
        return renamed;
    }
    let mut references = References { renamed, hidden: Vec::new(), depth: 0 };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) = item
            && let Some((own, name)) = references.own(expr)
        {
            *item = SelectItem::ExprWithAlias { expr: own, alias: Ident::with_quote('"', name) };
        }
    }
    let _: ControlFlow<()> = select.projection.visit(&mut references);
    let _: ControlFlow<()> = select.selection.visit(&mut references);
    let _: ControlFlow<()> = select.group_by.visit(&mut references);
    let _: ControlFlow<()> = select.having.visit(&mut references);
    let _: ControlFlow<()> = select.distinct.visit(&mut references);
    for from in &mut select.from {
        for join in &mut from.joins {
            let _: ControlFlow<()> = join.join_operator.visit(&mut references);
        }
    }
    references.renamed
}

/// Gives the columns beside a wildcard names of their own.
fn name_beside(query: &mut Query, table: &Ident, renamed: &mut Vec<Renamed>) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let is_wild =
        |it: &SelectItem| matches!(it, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    if !select.projection.iter().any(is_wild) {
        return;
    }
    for (index, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        let name = match &*expr {
            Expr::Identifier(name) => folded(name),
            Expr::CompoundIdentifier(parts) => parts.last().map(folded).unwrap_or_default(),
            _ => continue,
        };
        let own = Ident::with_quote('"', format!("{name}{APART}{index}"));
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: own.clone() };
        renamed.push(Renamed { table: folded(table), name, own });
    }
}

/// Replaces references outside of subqueries.
struct References {
    renamed: Vec<Renamed>,
    /// Names that mean something else without their table.
    hidden: Vec<String>,
    depth: usize,
}

impl References {
    /// Returns the reference by the column's own name, and the name in the statement.
    fn own(&self, expr: &Expr) -> Option<(Expr, String)> {
        let (table, name) = match expr {
            Expr::Identifier(name) => match folded(name) {
                name if self.hidden.contains(&name) => return None,
                name => (None, name),
            },
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, name] => (Some(folded(table)), folded(name)),
                _ => return None,
            },
            _ => return None,
        };
        let found = self
            .renamed
            .iter()
            .find(|it| it.name == name && table.as_ref().is_none_or(|table| *table == it.table))?;
        let table = Ident::with_quote('"', found.table.clone());
        Some((Expr::CompoundIdentifier(vec![table, found.own.clone()]), name))
    }
}

impl VisitorMut for References {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Some((own, _)) = self.own(expr)
        {
            *expr = own;
        }
        ControlFlow::Continue(())
    }
}
