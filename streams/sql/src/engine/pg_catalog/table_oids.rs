//! `tableoid` of the catalogue's tables, which is the same in each row.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Select, TableFactor, TableWithJoins, Value, VisitMut, VisitorMut,
};

use super::definitions::Definition;
use super::object_names::called;

const NAME: &str = "tableoid";

/// Replaces `tableoid` of the catalogue's tables in FROM. `find` returns such a table.
pub(super) fn replace(select: &mut Select, find: fn(&TableFactor) -> Option<&'static Definition>) {
    let mut tables = Vec::new();
    for from in &select.from {
        add(from, find, &mut tables);
    }
    if tables.is_empty() {
        return;
    }
    let ControlFlow::Continue(()) = select.visit(&mut TableOids { tables });
}

fn add(
    from: &TableWithJoins,
    find: fn(&TableFactor) -> Option<&'static Definition>,
    tables: &mut Vec<(String, u32)>,
) {
    let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|it| &it.relation));
    for factor in factors {
        match (factor, find(factor)) {
            (TableFactor::NestedJoin { table_with_joins, .. }, _) => {
                add(table_with_joins, find, tables);
            }
            (TableFactor::Table { alias, .. }, Some(table)) => {
                let name = alias.as_ref().map(|it| folded(&it.name));
                tables.push((name.unwrap_or_else(|| table.name.to_owned()), table.oid));
            }
            _ => {}
        }
    }
}

struct TableOids {
    /// Names in FROM, and their oids.
    tables: Vec<(String, u32)>,
}

impl VisitorMut for TableOids {
    type Break = std::convert::Infallible;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let found = match &*expr {
            Expr::Identifier(name) if folded(name) == NAME && self.tables.len() == 1 => {
                self.tables.first()
            }
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, name] if folded(name) == NAME => {
                    self.tables.iter().find(|it| it.0 == folded(table))
                }
                _ => None,
            },
            _ => None,
        };
        if let Some((_, oid)) = found {
            let oid = Expr::Value(Value::Number(oid.to_string(), false).into());
            *expr = called("regclass_oid", vec![oid]);
        }
        ControlFlow::Continue(())
    }
}

fn folded(name: &Ident) -> String {
    match name.quote_style {
        None => name.value.to_lowercase(),
        Some(_) => name.value.clone(),
    }
}
