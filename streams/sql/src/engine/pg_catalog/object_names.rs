//! Object identifier types, such as `regclass`: clients see names in place of oids.

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, ObjectNamePart, OrderBy, OrderByKind, Query, SelectItem,
    SetExpr, Value, ValueWithSpan,
};

use super::super::dialect::column_name;

/// Types with oids as values and names as text.
pub(super) const NAMED: &[&str] = &["regclass", "regnamespace", "regproc", "regrole", "regtype"];

/// Converts result columns of such types to names. They remain oids if the other side of a set
/// operation has other values, and if rows are sorted by them.
pub(super) fn show_names(query: &mut Query) {
    if let (SetExpr::Query(inner), None) = (query.body.as_mut(), &query.order_by) {
        return show_names(inner);
    }
    for index in columns_of_names(&query.body) {
        if !is_sorted_by(query, index) {
            show_name(&mut query.body, index);
        }
    }
}

/// Returns the indexes of columns that are object names in all sides.
fn columns_of_names(body: &SetExpr) -> Vec<usize> {
    match body {
        SetExpr::Query(query) if query.order_by.is_none() => columns_of_names(&query.body),
        SetExpr::SetOperation { left, right, .. } => {
            let of_right = columns_of_names(right);
            let of_left = columns_of_names(left).into_iter();
            of_left.filter(|it| of_right.contains(it)).collect()
        }
        SetExpr::Select(select) => {
            // The positions of columns after a `*` are unknown.
            let items = select.projection.iter().map_while(expression).enumerate();
            items.filter(|(_, (expr, _))| named(expr).is_some()).map(|(index, _)| index).collect()
        }
        _ => Vec::new(),
    }
}

fn expression(item: &SelectItem) -> Option<(&Expr, Ident)> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some((expr, Ident::with_quote('"', column_name(expr)))),
        SelectItem::ExprWithAlias { expr, alias } => Some((expr, alias.clone())),
        _ => None,
    }
}

fn show_name(body: &mut SetExpr, index: usize) {
    match body {
        SetExpr::Query(query) => show_name(&mut query.body, index),
        SetExpr::SetOperation { left, right, .. } => {
            show_name(left, index);
            show_name(right, index);
        }
        SetExpr::Select(select) => {
            let item = &mut select.projection[index];
            let Some((expr, alias)) = expression(item) else { return };
            let Some(named) = named(expr) else { return };
            *item = SelectItem::ExprWithAlias { expr: named, alias };
        }
        _ => {}
    }
}

/// Returns whether rows may be sorted by a column, which PostgreSQL does by oid.
fn is_sorted_by(query: &Query, index: usize) -> bool {
    let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = &query.order_by else {
        return query.order_by.is_some();
    };
    let mut first = query.body.as_ref();
    while let SetExpr::SetOperation { left, .. } = first {
        first = left;
    }
    let SetExpr::Select(select) = first else { return true };
    let Some((expr, alias)) = select.projection.get(index).and_then(expression) else {
        return true;
    };
    let place = (index + 1).to_string();
    keys.iter().any(|key| match &key.expr {
        Expr::Identifier(name) => folded(name) == folded(&alias),
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => *digits == place,
        other => other == expr,
    })
}

pub(super) fn folded(name: &Ident) -> String {
    match name.quote_style {
        None => name.value.to_lowercase(),
        Some(_) => name.value.clone(),
    }
}

/// Functions that find an object by name, and their counterparts that return its name.
const FOUND: &[(&str, &str)] = &[
    ("to_regclass", "regclass_text"),
    ("to_regtype", "regtype_text"),
    ("to_regnamespace", "regnamespace_text"),
];

/// Returns an expression for the name of the object that an expression identifies.
fn named(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Nested(inner) => named(inner),
        Expr::Cast { data_type, .. } => {
            let name = data_type.to_string().to_ascii_lowercase();
            let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
            NAMED.contains(&name).then(|| Expr::Cast {
                kind: CastKind::DoubleColon,
                expr: Box::new(expr.clone()),
                data_type: DataType::Text,
                array: false,
                format: None,
            })
        }
        Expr::Function(function) => {
            let name = last_part(&function.name)?.to_ascii_lowercase();
            let (_, text) = FOUND.iter().find(|(it, _)| *it == name)?;
            Some(called(text, vec![expr.clone()]))
        }
        _ if is_procedure(expr) => Some(called("regproc_text", vec![expr.clone()])),
        _ => None,
    }
}

/// Returns whether an expression is a column of the type `regproc`.
pub(super) fn is_procedure(expr: &Expr) -> bool {
    let name = match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(parts) => parts.last(),
        _ => None,
    };
    name.is_some_and(|it| folded(it) == "typreceive")
}

/// Returns the unqualified name.
pub(super) fn last_part(name: &ObjectName) -> Option<&str> {
    name.0.last().and_then(ObjectNamePart::as_ident).map(|it| it.value.as_str())
}

/// Returns a call of a function.
pub(super) fn called(name: &str, arguments: Vec<Expr>) -> Expr {
    let arguments = arguments.into_iter();
    let list = FunctionArgumentList {
        duplicate_treatment: None,
        args: arguments.map(|it| FunctionArg::Unnamed(FunctionArgExpr::Expr(it))).collect(),
        clauses: Vec::new(),
    };
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(list),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
