//! Windows by name: `OVER name`, `OVER (name …)` and `WINDOW one AS (other …)`. The engine looks
//! names up in the select list only, and leaves out what the named window says in the latter two.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowExpr, Query, Select, SetExpr, VisitMut, VisitorMut, WindowSpec,
    WindowType,
};

use super::names::folded;
use crate::error::{SqlError, SqlState};

const WINDOWING: SqlState = SqlState("42P20");

/// Spells out the windows of a SELECT and of its sort keys.
pub(super) fn spell_windows(query: &mut Query) -> Result<(), SqlError> {
    let SetExpr::Select(select) = query.body.as_mut() else { return Ok(()) };
    let windows = windows(select)?;
    spell(&mut query.order_by, &windows)
}

/// Spells out the windows of the select list.
pub(super) fn spell_selected(select: &mut Select) -> Result<(), SqlError> {
    let windows = windows(select)?;
    select.named_window.clear();
    spell(&mut select.projection, &windows)
}

type Windows = HashMap<String, WindowSpec>;

fn windows(select: &Select) -> Result<Windows, SqlError> {
    let mut windows = Windows::new();
    for definition in &select.named_window {
        let name = folded(&definition.0);
        if windows.contains_key(&name) {
            return Err(SqlError::new(WINDOWING, format!("window {name:?} is already defined")));
        }
        let spec = match &definition.1 {
            NamedWindowExpr::NamedWindow(of) => found(of, &windows)?.clone(),
            NamedWindowExpr::WindowSpec(spec) => copied(spec, &windows)?,
        };
        windows.insert(name, spec);
    }
    Ok(windows)
}

fn found<'a>(name: &Ident, windows: &'a Windows) -> Result<&'a WindowSpec, SqlError> {
    let name = folded(name);
    windows
        .get(&name)
        .ok_or_else(|| SqlError::new(SqlState("42704"), format!("window {name:?} does not exist")))
}

/// Returns a window with the clauses of the window that it names.
fn copied(spec: &WindowSpec, windows: &Windows) -> Result<WindowSpec, SqlError> {
    let Some(name) = &spec.window_name else { return Ok(spec.clone()) };
    let base = found(name, windows)?;
    let name = folded(name);
    let what = if !spec.partition_by.is_empty() {
        format!("cannot override PARTITION BY clause of window {name:?}")
    } else if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        format!("cannot override ORDER BY clause of window {name:?}")
    } else if base.window_frame.is_some() {
        format!("cannot copy window {name:?} because it has a frame clause")
    } else {
        let order_by = match spec.order_by.is_empty() {
            true => base.order_by.clone(),
            false => spec.order_by.clone(),
        };
        let (partition_by, window_frame) = (base.partition_by.clone(), spec.window_frame.clone());
        return Ok(WindowSpec { window_name: None, partition_by, order_by, window_frame });
    };
    Err(SqlError::new(WINDOWING, what))
}

fn spell(node: &mut impl VisitMut, windows: &Windows) -> Result<(), SqlError> {
    match node.visit(&mut Spelling { windows, depth: 0 }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Spelling<'a> {
    windows: &'a Windows,
    /// Nesting depth of queries, which have windows of their own.
    depth: usize,
}

impl VisitorMut for Spelling<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let spec = match &function.over {
            Some(WindowType::NamedWindow(name)) if self.depth == 0 => {
                found(name, self.windows).cloned()
            }
            Some(WindowType::WindowSpec(spec)) if self.depth == 0 => copied(spec, self.windows),
            _ => return ControlFlow::Continue(()),
        };
        match spec {
            Ok(spec) => {
                function.over = Some(WindowType::WindowSpec(spec));
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }
}
