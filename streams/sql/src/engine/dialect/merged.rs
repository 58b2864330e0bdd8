//! Columns merged by USING. The engine keeps the columns of both sides, and resolves `*`, and names
//! merged by several joins, to an arbitrary one.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ExceptSelectItem, Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, Query, Select,
    SelectItem, SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};

use super::names::folded;

/// Qualifies `*` and merged columns with the first table that has them.
pub(super) fn name_merged(select: &mut Select) {
    let Some(tables) = tables(&select.from) else { return };
    if tables.iter().all(|it| it.merged.is_empty()) {
        return;
    }
    spell_wildcards(&mut select.projection, &tables);
    let mut merged = Merged { columns: HashMap::new(), depth: 0, count_min: 1 };
    for from in &select.from {
        merged.add(from);
    }
    let _: ControlFlow<()> = select.selection.visit(&mut merged);
    let mut merged = Merged { columns: HashMap::new(), depth: 0, count_min: 2 };
    for from in &select.from {
        merged.add(from);
    }
    if merged.columns.is_empty() {
        return;
    }
    let _: ControlFlow<()> = select.projection.visit(&mut merged);
    let _: ControlFlow<()> = select.group_by.visit(&mut merged);
    let _: ControlFlow<()> = select.having.visit(&mut merged);
}

/// A table in FROM, and its columns merged into those of earlier tables.
struct Table {
    name: Ident,
    merged: Vec<Ident>,
}

/// Returns the tables joined by ON, USING or without a condition, or `None` if there are other
/// joins.
fn tables(from: &[TableWithJoins]) -> Option<Vec<Table>> {
    let mut tables = Vec::new();
    for from in from {
        tables.push(Table { name: name_of(&from.relation)?, merged: Vec::new() });
        for join in &from.joins {
            let merged = match constraint(join)? {
                JoinConstraint::Using(names) => {
                    names.iter().map(last_of).collect::<Option<Vec<_>>>()?
                }
                JoinConstraint::Natural => return None,
                _ => Vec::new(),
            };
            tables.push(Table { name: name_of(&join.relation)?, merged });
        }
    }
    Some(tables)
}

/// Returns the condition of a join that preserves the left side.
fn constraint(join: &Join) -> Option<&JoinConstraint> {
    match &join.join_operator {
        JoinOperator::Join(it)
        | JoinOperator::Inner(it)
        | JoinOperator::Left(it)
        | JoinOperator::LeftOuter(it)
        | JoinOperator::CrossJoin(it) => Some(it),
        _ => None,
    }
}

/// Returns the name of a table in FROM.
pub(super) fn name_of(factor: &TableFactor) -> Option<Ident> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, .. } => last_of(name),
        _ => None,
    }
}

/// Returns the last part of a name.
pub(super) fn last_of(name: &ObjectName) -> Option<Ident> {
    name.0.last().and_then(|it| it.as_ident()).cloned()
}

fn spell_wildcards(projection: &mut Vec<SelectItem>, tables: &[Table]) {
    let is_plain = |it: &SelectItem| match it {
        SelectItem::Wildcard(options) => *options == WildcardAdditionalOptions::default(),
        _ => false,
    };
    if !projection.iter().any(is_plain) {
        return;
    }
    let spelled = std::mem::take(projection).into_iter().flat_map(|item| {
        if !is_plain(&item) {
            return vec![item];
        }
        tables.iter().map(columns_of).collect()
    });
    *projection = spelled.collect();
}

/// Returns the columns of a table without the merged ones.
fn columns_of(table: &Table) -> SelectItem {
    rest_of(&table.name, &table.merged.iter().map(folded).collect::<Vec<_>>())
}

/// Returns the columns of a table without some.
pub(super) fn rest_of(table: &Ident, without: &[String]) -> SelectItem {
    let mut without = without.iter().map(|it| Ident::with_quote('"', it));
    let opt_except = without.next().map(|first_element| ExceptSelectItem {
        first_element,
        additional_elements: without.collect(),
    });
    let name = ObjectName::from(vec![table.clone()]);
    SelectItem::QualifiedWildcard(
        SelectItemQualifiedWildcardKind::ObjectName(name),
        WildcardAdditionalOptions { opt_except, ..WildcardAdditionalOptions::default() },
    )
}

/// Columns merged by several joins, and the table of each.
struct Merged {
    columns: HashMap<String, Ident>,
    /// Nesting depth of queries.
    depth: usize,
    /// Number of joins that a column is merged by, at least.
    count_min: usize,
}

impl Merged {
    fn add(&mut self, from: &TableWithJoins) {
        let Some(table) = name_of(&from.relation) else { return };
        let mut counts: HashMap<String, usize> = HashMap::new();
        for (index, join) in from.joins.iter().enumerate() {
            let Some(JoinConstraint::Using(names)) = constraint(join) else { continue };
            for name in names.iter().filter_map(last_of) {
                let count = counts.entry(folded(&name)).or_default();
                // For later joins, the column may belong to any preceding table.
                if index == 0 || *count > 0 {
                    *count += 1;
                }
            }
        }
        let several = counts.into_iter().filter(|(_, count)| *count >= self.count_min);
        self.columns.extend(several.map(|(name, _)| (name, table.clone())));
    }
}

impl VisitorMut for Merged {
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
        if let (0, Expr::Identifier(name)) = (self.depth, &*expr)
            && let Some(table) = self.columns.get(&folded(name))
        {
            *expr = Expr::CompoundIdentifier(vec![table.clone(), name.clone()]);
        }
        ControlFlow::Continue(())
    }
}
