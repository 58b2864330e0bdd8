//! Conversion of whole rows to JSON, for row constructors and subqueries in FROM with known
//! columns.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Join, JoinOperator, Query,
    Select, SelectItem, SetExpr, TableFactor, Value, VisitMut, VisitorMut,
};

use super::json_functions::{JSON_LINE, JSON_ROW};
use super::names::{figure, folded};
use super::written::call;

const JSONB_ROW: &str = "jsonb_build_object";

/// Functions of a row, and their implementations.
const OF_ROWS: &[(&str, &str)] =
    &[("row_to_json", JSON_ROW), ("to_json", JSON_ROW), ("to_jsonb", JSONB_ROW)];

/// Aggregates of rows, and the functions for their argument.
const OF_ALL: &[(&str, &str)] = &[("json_agg", JSON_ROW), ("jsonb_agg", JSONB_ROW)];

/// A table of a SELECT, and its columns.
struct Table {
    name: Ident,
    columns: Vec<String>,
}

/// Expands rows that a SELECT converts to JSON into their columns.
pub(super) fn spell_rows(select: &mut Select) {
    // An outer join makes the whole row NULL, not its columns.
    let mut joins = select.from.iter().flat_map(|it| &it.joins);
    let is_inner = |it: &Join| {
        matches!(
            it.join_operator,
            JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_)
        )
    };
    if !joins.all(is_inner) {
        return;
    }
    let factors = select.from.iter().flat_map(|from| {
        std::iter::once(&from.relation).chain(from.joins.iter().map(|it| &it.relation))
    });
    // A column of another table could have the name of the row.
    let tables = factors.map(table).collect::<Option<Vec<_>>>().unwrap_or_default();
    let mut rows = Rows { tables, depth: 0 };
    let _: ControlFlow<()> = select.projection.visit(&mut rows);
}

fn table(factor: &TableFactor) -> Option<Table> {
    let TableFactor::Derived { subquery, alias: Some(alias), .. } = factor else { return None };
    let mut columns = columns(&subquery.body)?;
    for (column, given) in columns.iter_mut().zip(&alias.columns) {
        *column = folded(&given.name);
    }
    let is_known = alias.columns.len() <= columns.len()
        && (1..columns.len()).all(|index| !columns[..index].contains(&columns[index]));
    is_known.then(|| Table { name: alias.name.clone(), columns })
}

fn columns(body: &SetExpr) -> Option<Vec<String>> {
    match body {
        SetExpr::Select(select) => {
            let names = select.projection.iter().map(|it| match it {
                SelectItem::UnnamedExpr(expr) => Some(figure(expr).0),
                SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
                _ => None,
            });
            names.collect()
        }
        SetExpr::Values(values) => {
            let count = values.rows.first()?.content.len();
            Some((1..=count).map(|index| format!("column{index}")).collect())
        }
        SetExpr::Query(query) => columns(&query.body),
        SetExpr::SetOperation { left, .. } => columns(left),
        _ => None,
    }
}

struct Rows {
    tables: Vec<Table>,
    /// Nesting depth of subqueries, which have their own tables.
    depth: usize,
}

impl Rows {
    /// Returns the names and values of a row.
    fn parts(&self, row: &Expr) -> Option<Vec<Expr>> {
        match row {
            Expr::Nested(inner) => self.parts(inner),
            Expr::Tuple(values) => Some(written(values)),
            Expr::Identifier(name) => {
                let name = folded(name);
                if self.tables.iter().any(|it| it.columns.contains(&name)) {
                    return None;
                }
                let table = self.tables.iter().find(|it| folded(&it.name) == name)?;
                let parts = table.columns.iter().flat_map(|column| {
                    let place = vec![table.name.clone(), Ident::with_quote('"', column)];
                    [text(column), Expr::CompoundIdentifier(place)]
                });
                Some(parts.collect())
            }
            _ => None,
        }
    }
}

fn written(values: &[Expr]) -> Vec<Expr> {
    let parts = values.iter().enumerate();
    parts.flat_map(|(index, value)| [text(&format!("f{}", index + 1)), value.clone()]).collect()
}

fn text(text: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(text.to_owned()).into())
}

impl VisitorMut for Rows {
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
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let name = function.name.to_string();
        let FunctionArguments::List(list) = &mut function.args else {
            return ControlFlow::Continue(());
        };
        let [FunctionArg::Unnamed(FunctionArgExpr::Expr(row))] = list.args.as_mut_slice() else {
            return ControlFlow::Continue(());
        };
        let of = |names: &'static [(&str, &'static str)]| {
            names.iter().find(|(it, _)| it.eq_ignore_ascii_case(&name)).map(|(_, of)| *of)
        };
        if let Some(of) = of(OF_ALL)
            && let Some(parts) = self.parts(row)
        {
            let written = call(of, parts);
            *row = if of == JSON_ROW { call(JSON_LINE, vec![written]) } else { written };
        } else if let Some(of) = of(OF_ROWS)
            && let Some(parts) = self.parts(row)
        {
            *expr = call(of, parts);
        }
        ControlFlow::Continue(())
    }
}
