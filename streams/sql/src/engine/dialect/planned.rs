//! Types of operands during operator planning. The engine derives a type by walking down to columns
//! and literals. For expressions planned just before, the type is known, so that long chains of
//! operators do not take quadratic time.

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF};

use super::chains::planned_type;
use super::conversions::plain_target;
use super::short_names::is_mark;
use crate::wire::PgType;

/// Returns the type of an operand.
pub(in crate::engine) fn type_of(expr: &Expr, schema: &DFSchema) -> Result<DataType> {
    match known_type(expr) {
        Some(known) => Ok(known),
        None => expr.get_type(schema),
    }
}

/// Passes the field of an operand to `asks`: its type and metadata, such as that it is JSON.
pub(super) fn with_field<T>(
    expr: &Expr,
    schema: &DFSchema,
    asks: impl FnOnce(&Field) -> T,
) -> Result<T> {
    match known_type(expr) {
        Some(known) => Ok(asks(&Field::new("", known, true))),
        None => expr.to_field(schema).map(|(_, field)| asks(&field)),
    }
}

pub(super) fn is_json(expr: &Expr, schema: &DFSchema) -> bool {
    with_field(expr, schema, |it| PgType::of(it).is_json()).unwrap_or(false)
}

/// Name of the function for `||` of texts.
pub(in crate::engine) const CONCAT_TEXTS: &str = "concat_texts";

/// Returns whether a function concatenates texts.
pub(in crate::engine) fn joins_texts(function: &ScalarUDF) -> bool {
    function.name() == CONCAT_TEXTS
}

fn known_type(expr: &Expr) -> Option<DataType> {
    let Expr::ScalarFunction(call) = expr else { return None };
    match call.args.first() {
        Some(marked) if is_mark(&call.func) => known_type(marked),
        _ if joins_texts(&call.func) => Some(DataType::Utf8View),
        _ => planned_type(&call.func).cloned().or_else(|| plain_target(&call.func)),
    }
}
