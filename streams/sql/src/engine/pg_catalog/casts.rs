//! Casts of PostgreSQL's clients that the engine does not support, rewritten to ones that it does.
//! Names of types lose their schema and quotes.

use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, CastKind, DataType, Expr, Ident, ObjectName, ObjectNamePart, Value,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::definitions::{INFORMATION_SCHEMA, PG_CATALOG};
use super::object_names::{NAMED, called, is_procedure, last_part};

/// Removes the system schema and quotes from a type's name.
pub(super) fn plain_type(data_type: &mut DataType) {
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(inner, _)) = data_type {
        return plain_type(inner);
    }
    let DataType::Custom(name, _) = data_type else { return };
    let is_qualified = name.0.len() > 1;
    unqualify(name);
    let text = match name.0.as_slice() {
        // In quotes it is another type.
        [ObjectNamePart::Identifier(part)]
            if part.quote_style.is_some() && part.value != "char" =>
        {
            part.value.clone()
        }
        _ if is_qualified => name.to_string(),
        _ => return,
    };
    let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text);
    if let Ok(parsed) = parsed.and_then(|mut parser| parser.parse_data_type()) {
        *data_type = parsed;
    }
}

/// `"char"` columns are text in this server, so casts of single letters to it become casts to text.
pub(super) fn plain_letter(expr: &Expr, data_type: &mut DataType) {
    let is_type = |it: &DataType| match it {
        DataType::Custom(name, _) => name.to_string() == "\"char\"",
        _ => false,
    };
    match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(inner, _)) => {
            let Expr::Array(Array { elem, .. }) = expr else { return };
            if is_type(inner) && elem.iter().all(is_letter) {
                **inner = DataType::Text;
            }
        }
        _ if is_type(data_type) && is_letter(expr) => *data_type = DataType::Text,
        _ => {}
    }
}

/// Replaces a cast such as `'t'::char` in a comparison by a cast to text. Of a parameter, only the
/// first letter counts.
pub(super) fn compared_letter(operand: &mut Expr) {
    let Expr::Cast { expr, data_type, .. } = operand else { return };
    let is_parameter =
        matches!(&**expr, Expr::Value(it) if matches!(it.value, Value::Placeholder(_)));
    let is_character = match data_type {
        DataType::Char(None) | DataType::Character(None) => true,
        DataType::Custom(name, _) => is_parameter && name.to_string() == "\"char\"",
        _ => false,
    };
    if !is_character {
        return;
    }
    if is_letter(expr) || is_parameter {
        *data_type = DataType::Text;
    }
    if is_parameter {
        *operand = called("left", vec![take(operand), one()]);
    }
}

/// Rewrites a cast that the engine does not support.
pub(super) fn converted(expr: &mut Box<Expr>, data_type: &DataType) -> Option<Expr> {
    let type_name = data_type.to_string().to_ascii_lowercase();
    if let DataType::Array(ArrayElemTypeDef::SquareBracket(inner, _)) = data_type
        && let Expr::Value(value) = &**expr
        && let Value::SingleQuotedString(text) = &value.value
    {
        return array_literal(text, inner);
    }
    // Cast of a cast: `'orders'::regclass::text`, `oid::regclass::oid`.
    let wanted = match type_name.as_str() {
        "text" | "varchar" | "name" => Some("text"),
        "oid" => Some("oid"),
        _ => None,
    };
    if wanted == Some("text") && is_procedure(expr) {
        return Some(called("regproc_text", vec![take(expr)]));
    }
    if let (Some(wanted), Expr::Function(inner)) = (wanted, &mut **expr) {
        let name = last_part(&inner.name).unwrap_or("");
        let family = name.strip_suffix("_oid").or_else(|| name.strip_suffix("_text"));
        if let Some(family) = family.filter(|it| NAMED.contains(it) && *it != "regproc") {
            inner.name = ObjectName::from(vec![Ident::new(format!("{family}_{wanted}"))]);
            return Some(take(expr));
        }
    }
    // Cast of a cast to the same type.
    if let Expr::Function(inner) = &**expr {
        let name = last_part(&inner.name).unwrap_or("");
        let family = name.strip_suffix("_oid").or_else(|| name.strip_suffix("_text"));
        if family == Some(type_name.as_str()) {
            return Some(take(expr));
        }
    }
    if type_name == "regprocedure" {
        return procedure(expr);
    }
    if !NAMED.contains(&type_name.as_str()) {
        return None;
    }
    let is_name = matches!(&**expr, Expr::Value(it)
        if matches!(it.value, Value::SingleQuotedString(_) | Value::Placeholder(_)));
    let form = match type_name.as_str() {
        "regproc" | "regrole" => "text",
        _ if is_name => "oid",
        _ => "text",
    };
    Some(called(&format!("{type_name}_{form}"), vec![take(expr)]))
}

/// Converts a literal such as `'array_in(cstring,oid,integer)'::regprocedure` to the function's
/// name: none has the same name as another.
fn procedure(expr: &mut Box<Expr>) -> Option<Expr> {
    let Expr::Value(value) = &mut **expr else { return None };
    let Value::SingleQuotedString(text) = &mut value.value else { return None };
    let end = text.find('(')?;
    text.truncate(end);
    Some(called("regproc_text", vec![take(expr)]))
}

/// Converts an array literal such as `'{a,b}'::text[]`.
fn array_literal(text: &str, inner: &DataType) -> Option<Expr> {
    let inside = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    if inside.contains(['{', '"', '\\']) {
        return None;
    }
    let elements: Vec<_> = match inside.trim() {
        "" => Vec::new(),
        some => some.split(',').map(str::trim).collect(),
    };
    if elements.contains(&"") {
        return None;
    }
    let elements = elements.into_iter().map(|element| {
        let value = match element.eq_ignore_ascii_case("null") {
            true => Value::Null,
            false => Value::SingleQuotedString(element.to_owned()),
        };
        Expr::Cast {
            kind: CastKind::DoubleColon,
            expr: Box::new(Expr::Value(value.into())),
            data_type: inner.clone(),
            array: false,
            format: None,
        }
    });
    let elem: Vec<_> = elements.collect();
    if !elem.is_empty() {
        return Some(Expr::Array(Array { elem, named: true }));
    }
    // An empty array's type is known only from a cast.
    let element = Box::new(inner.clone());
    Some(Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(Expr::Array(Array { elem, named: true })),
        data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(element, None)),
        array: false,
        format: None,
    })
}

/// Returns whether an expression is a literal such as `'r'`, which is the same as `"char"` and as
/// text.
fn is_letter(expr: &Expr) -> bool {
    let Expr::Value(value) = expr else { return false };
    match &value.value {
        Value::SingleQuotedString(text) => text.len() == 1 && text != " ",
        Value::Null => true,
        _ => false,
    }
}

fn one() -> Expr {
    Expr::Value(Value::Number("1".to_owned(), false).into())
}

pub(super) fn null() -> Expr {
    Expr::Value(Value::Null.into())
}

pub(super) fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, null())
}

/// Removes the system schema from a qualified name.
pub(super) fn unqualify(name: &mut ObjectName) {
    let schema = name.0.first().and_then(ObjectNamePart::as_ident);
    let is_of_system = schema.is_some_and(|it| {
        it.value.eq_ignore_ascii_case(PG_CATALOG)
            || it.value.eq_ignore_ascii_case(INFORMATION_SCHEMA)
    });
    if name.0.len() == 2 && is_of_system {
        name.0.remove(0);
    }
}
