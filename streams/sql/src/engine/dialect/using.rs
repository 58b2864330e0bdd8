//! Joins by the names of columns, written as joins with ON where the engine does not join by names
//! as PostgreSQL does: RIGHT and FULL JOIN, and `*` with such joins.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Join, JoinConstraint, JoinOperator, OrderBy, OrderByKind, Query,
    Select, SelectItem, SetExpr, TableAlias, TableFactor, TableWithJoins, Value, VisitMut,
    VisitorMut, WildcardAdditionalOptions,
};

use super::merged::{last_of, name_of, rest_of};
use super::names::{figure, folded};
use super::set_operations::names;
use super::written::{binary, call, nested};

/// Columns of the queries of WITH, as far as they are known, by their names. The last map is of the
/// innermost query.
pub(super) type Known = Vec<HashMap<String, Option<Vec<String>>>>;

/// Returns the columns of the queries of WITH of a query.
pub(super) fn columns_of_with(query: &Query) -> HashMap<String, Option<Vec<String>>> {
    let tables = query.with.iter().flat_map(|it| &it.cte_tables);
    let known =
        tables.map(|it| (folded(&it.alias.name), aliased(&it.alias, names(&it.query.body))));
    known.collect()
}

/// Rewrites the joins of a SELECT, and its columns in the sort keys. Leaves it as it is if the
/// columns of the tables are not known.
pub(super) fn spell_using(select: &mut Select, order_by: Option<&mut OrderBy>, known: &Known) {
    let is_wild = select.projection.iter().any(is_wildcard);
    let [from] = select.from.as_slice() else { return };
    if !from.joins.iter().any(|it| is_asked(it, is_wild)) {
        return;
    }
    let mut from = from.clone();
    let Some(columns) = Merged::of(&mut from, known) else { return };
    let mut copy = select.clone();
    copy.from.clear();
    let mut keys = order_by.as_deref().cloned();
    if columns.replace(&mut copy, keys.as_mut()).is_none() {
        return;
    }
    copy.from = vec![from];
    *select = copy;
    if let (Some(order_by), Some(keys)) = (order_by, keys) {
        *order_by = keys;
    }
}

fn is_wildcard(item: &SelectItem) -> bool {
    match item {
        SelectItem::Wildcard(options) => *options == WildcardAdditionalOptions::default(),
        _ => false,
    }
}

/// Returns whether the engine does not evaluate a join by names as PostgreSQL does.
fn is_asked(join: &Join, is_wild: bool) -> bool {
    let is_by_name =
        |it: &JoinConstraint| matches!(it, JoinConstraint::Using(_) | JoinConstraint::Natural);
    match &join.join_operator {
        JoinOperator::Right(it) | JoinOperator::RightOuter(it) | JoinOperator::FullOuter(it) => {
            is_by_name(it)
        }
        JoinOperator::Join(it)
        | JoinOperator::Inner(it)
        | JoinOperator::Left(it)
        | JoinOperator::LeftOuter(it) => is_wild && is_by_name(it),
        _ => false,
    }
}

/// Columns that joins by name merge, and all columns in the order of `*`.
struct Merged {
    /// The columns that make up a merged one.
    columns: HashMap<String, Vec<Expr>>,
    shown: Vec<Shown>,
}

enum Shown {
    Merged(String),
    /// A table without these columns, and all its columns if they are known.
    Rest(Ident, Vec<String>, Option<Vec<String>>),
}

impl Merged {
    fn of(from: &mut TableWithJoins, known: &Known) -> Option<Self> {
        let first = name_of(&from.relation)?;
        let columns = columns_of(&from.relation, known);
        let mut merged =
            Self { columns: HashMap::new(), shown: vec![Shown::Rest(first, Vec::new(), columns)] };
        for join in &mut from.joins {
            merged.join(join, known)?;
        }
        Some(merged)
    }

    fn join(&mut self, join: &mut Join, known: &Known) -> Option<()> {
        let table = name_of(&join.relation)?;
        let columns = columns_of(&join.relation, known);
        let constraint = match &mut join.join_operator {
            JoinOperator::Join(it)
            | JoinOperator::Inner(it)
            | JoinOperator::Left(it)
            | JoinOperator::LeftOuter(it)
            | JoinOperator::Right(it)
            | JoinOperator::RightOuter(it)
            | JoinOperator::FullOuter(it)
            | JoinOperator::CrossJoin(it) => it,
            _ => return None,
        };
        let names = match constraint {
            JoinConstraint::Using(names) => {
                names.iter().map(|it| last_of(it).as_ref().map(folded)).collect::<Option<_>>()?
            }
            JoinConstraint::Natural => {
                let right = columns.as_ref()?;
                let mut left = self.all_names()?;
                left.retain(|it| right.contains(it));
                left
            }
            JoinConstraint::On(condition) => {
                self.replace_in(condition)?;
                Vec::new()
            }
            JoinConstraint::None => Vec::new(),
        };
        if matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural) {
            let pairs = names.iter().map(|name| {
                let left = self.parts_of(name)?;
                Some(binary(value_of(&left), BinaryOperator::Eq, column(&table, name)))
            });
            let pairs = pairs.collect::<Option<Vec<_>>>()?;
            let all = pairs.into_iter().reduce(|all, it| binary(all, BinaryOperator::And, it));
            let all = all.unwrap_or_else(|| Expr::Value(Value::Boolean(true).into()));
            *constraint = JoinConstraint::On(all);
        }
        self.merge(table, columns, names)
    }

    /// Adds a table that is joined by these columns.
    fn merge(
        &mut self,
        table: Ident,
        columns: Option<Vec<String>>,
        names: Vec<String>,
    ) -> Option<()> {
        for name in &names {
            let mut parts = self.parts_of(name)?;
            parts.push(column(&table, name));
            self.columns.insert(name.clone(), parts);
            for shown in &mut self.shown {
                if let Shown::Rest(_, without, all) = shown
                    && all.as_ref().is_none_or(|it| it.contains(name))
                {
                    without.push(name.clone());
                }
            }
        }
        self.shown.retain(|it| !matches!(it, Shown::Merged(name) if names.contains(name)));
        self.shown.splice(0..0, names.iter().cloned().map(Shown::Merged));
        self.shown.push(Shown::Rest(table, names, columns));
        Some(())
    }

    /// Returns the names of all columns so far.
    fn all_names(&self) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for shown in &self.shown {
            match shown {
                Shown::Merged(name) => names.push(name.clone()),
                Shown::Rest(_, without, all) => {
                    names.extend(all.as_ref()?.iter().filter(|it| !without.contains(it)).cloned());
                }
            }
        }
        let is_twice = (1..names.len()).any(|index| names[..index].contains(&names[index]));
        (!is_twice).then_some(names)
    }

    /// Returns the columns that make up a column of the left side.
    fn parts_of(&self, name: &String) -> Option<Vec<Expr>> {
        if let Some(parts) = self.columns.get(name) {
            return Some(parts.clone());
        }
        let tables = self.shown.iter().filter_map(|it| match it {
            Shown::Rest(table, _, columns) => Some((table, columns)),
            Shown::Merged(_) => None,
        });
        let tables: Vec<_> = tables.collect();
        let [(table, _)] = tables.as_slice() else {
            let has = |columns: &Option<Vec<String>>| columns.as_ref().map(|it| it.contains(name));
            let mut found = None;
            for (table, columns) in tables {
                if has(columns)? && found.replace(table).is_some() {
                    return None;
                }
            }
            return found.map(|table| vec![column(table, name)]);
        };
        Some(vec![column(table, name)])
    }

    /// Replaces the merged columns of a SELECT. Returns `None` if a subquery may name one.
    fn replace(&self, select: &mut Select, order_by: Option<&mut OrderBy>) -> Option<()> {
        let mut projection = Vec::new();
        for item in std::mem::take(&mut select.projection) {
            match item {
                item if is_wildcard(&item) => {
                    projection.extend(self.shown.iter().flat_map(|it| self.spelled(it)));
                }
                SelectItem::UnnamedExpr(mut expr) => {
                    let (before, name) = (expr.clone(), figure(&expr).0);
                    self.replace_in(&mut expr)?;
                    projection.push(match expr == before {
                        true => SelectItem::UnnamedExpr(expr),
                        false => {
                            SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) }
                        }
                    });
                }
                mut item => {
                    self.replace_in(&mut item)?;
                    projection.push(item);
                }
            }
        }
        self.replace_in(select)?;
        select.projection = projection;
        if let Some(OrderByKind::Expressions(keys)) = order_by.map(|it| &mut it.kind) {
            let outputs = select.projection.iter().filter_map(|it| match it {
                SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
                SelectItem::UnnamedExpr(expr) => Some(figure(expr).0),
                _ => None,
            });
            let outputs: Vec<_> = outputs.collect();
            for key in keys {
                match &key.expr {
                    Expr::Identifier(name) if outputs.contains(&folded(name)) => {}
                    _ => self.replace_in(&mut key.expr)?,
                }
            }
        }
        Some(())
    }

    fn spelled(&self, shown: &Shown) -> Vec<SelectItem> {
        match shown {
            Shown::Merged(name) => vec![SelectItem::ExprWithAlias {
                expr: value_of(self.columns.get(name).map_or(&[], Vec::as_slice)),
                alias: Ident::with_quote('"', name),
            }],
            Shown::Rest(table, without, Some(columns)) => {
                let rest = columns.iter().filter(|it| !without.contains(it));
                rest.map(|it| SelectItem::UnnamedExpr(column(table, it))).collect()
            }
            Shown::Rest(table, without, None) => vec![rest_of(table, without)],
        }
    }

    fn replace_in(&self, node: &mut impl VisitMut) -> Option<()> {
        let mut replacing = Replacing { columns: &self.columns, depth: 0 };
        node.visit(&mut replacing).is_continue().then_some(())
    }
}

fn column(table: &Ident, name: &str) -> Expr {
    Expr::CompoundIdentifier(vec![table.clone(), Ident::with_quote('"', name)])
}

/// Returns the value of a merged column, which has the common type of its parts.
fn value_of(parts: &[Expr]) -> Expr {
    match parts {
        [one] => one.clone(),
        parts => nested(call("coalesce", parts.to_vec())),
    }
}

/// Returns the columns of a table, if they are known from the query.
fn columns_of(factor: &TableFactor, known: &Known) -> Option<Vec<String>> {
    match factor {
        TableFactor::Derived { lateral: false, subquery, alias: Some(alias), .. } => {
            aliased(alias, names(&subquery.body))
        }
        TableFactor::Table { name, alias, args: None, .. } => {
            let [part] = name.0.as_slice() else { return None };
            let name = folded(part.as_ident()?);
            let columns = known.iter().rev().find_map(|it| it.get(&name)).cloned().flatten();
            match alias {
                Some(alias) => aliased(alias, columns),
                None => columns,
            }
        }
        _ => None,
    }
}

fn aliased(alias: &TableAlias, columns: Option<Vec<String>>) -> Option<Vec<String>> {
    let mut columns = columns?;
    for (name, column) in alias.columns.iter().zip(&mut columns) {
        *column = folded(&name.name);
    }
    let is_twice = (1..columns.len()).any(|index| columns[..index].contains(&columns[index]));
    (!is_twice).then_some(columns)
}

/// Replaces names of merged columns. Breaks at a subquery that has such a name.
struct Replacing<'a> {
    columns: &'a HashMap<String, Vec<Expr>>,
    /// Nesting depth of queries.
    depth: usize,
}

impl VisitorMut for Replacing<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Identifier(name) = &*expr else { return ControlFlow::Continue(()) };
        match self.columns.get(&folded(name)) {
            Some(_) if self.depth > 0 => ControlFlow::Break(()),
            Some(parts) => {
                *expr = value_of(parts);
                ControlFlow::Continue(())
            }
            None => ControlFlow::Continue(()),
        }
    }
}

/// Rewrites the joins of a query whose body is a SELECT.
pub(super) fn spell_joins(query: &mut Query, known: &Known) {
    if let SetExpr::Select(select) = query.body.as_mut() {
        spell_using(select, query.order_by.as_mut(), known);
    }
}
