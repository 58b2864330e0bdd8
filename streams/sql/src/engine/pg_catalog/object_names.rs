//! Names of objects, which clients are shown for oids: those of `regclass` and of types like it.

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, ObjectNamePart, SelectItem, SetExpr,
};

use super::super::dialect::column_name;

/// Types whose values are oids and whose texts are names.
pub(super) const NAMED: &[&str] = &["regclass", "regnamespace", "regproc", "regrole", "regtype"];

/// Has columns that a client is told be the names of objects, which are their oids elsewhere.
pub(super) fn show_names(body: &mut SetExpr) {
    match body {
        SetExpr::Query(query) => show_names(&mut query.body),
        SetExpr::SetOperation { left, right, .. } => {
            show_names(left);
            show_names(right);
        }
        SetExpr::Select(select) => {
            for item in &mut select.projection {
                let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) =
                    &*item
                else {
                    continue;
                };
                let Some(named) = named(expr) else { continue };
                let alias = match &*item {
                    SelectItem::ExprWithAlias { alias, .. } => alias.clone(),
                    _ => Ident::with_quote('"', column_name(expr)),
                };
                *item = SelectItem::ExprWithAlias { expr: named, alias };
            }
        }
        _ => {}
    }
}

/// Functions that find an object by its name, and those that give its name.
const FOUND: &[(&str, &str)] = &[("to_regclass", "regclass_text"), ("to_regtype", "regtype_text")];

/// The name that an oid is shown as.
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
        _ => None,
    }
}

/// The last part of a name, without its schema.
pub(super) fn last_part(name: &ObjectName) -> Option<&str> {
    name.0.last().and_then(ObjectNamePart::as_ident).map(|it| it.value.as_str())
}

/// Call of a function.
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
