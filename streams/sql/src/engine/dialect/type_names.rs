//! `pg_typeof`: the name of a value's type, which is known once all operands have their types.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable, ScalarUDF, lit};

use super::by_row::{self, text_field};
use super::refusal::refused;
use crate::wire::PgType;

const NAME: &str = "pg_typeof";

/// The function. Its second argument is the name of the first one's type, once that is known.
pub(super) fn function() -> Arc<ScalarUDF> {
    let returns = |fields: &[_]| match fields {
        [_] | [_, _] => Ok(text_field()),
        _ => Err(String::new()),
    };
    by_row::function(NAME, returns, |row| match row.values.get(1) {
        Some(name) => Ok(name.clone()),
        None => Ok(ScalarValue::Utf8(None)),
    })
}

/// Adds the name of the type to a call.
pub(super) fn named(mut expr: Expr, schema: &DFSchema) -> Result<Expr> {
    if let Expr::ScalarFunction(call) = &mut expr
        && call.func.name() == NAME
        && let [value] = call.args.as_slice()
    {
        let name = match value {
            Expr::Literal(ScalarValue::Utf8(_), None) => Some("unknown".to_owned()),
            Expr::Placeholder(_) => None,
            value => name_of(value.to_field(schema)?.1.as_ref()),
        };
        let unknown = || refused("pg_typeof of this value").into_engine();
        call.args.push(lit(name.ok_or_else(unknown)?));
    }
    Ok(expr)
}

fn name_of(field: &Field) -> Option<String> {
    match field.data_type() {
        DataType::Null => Some("unknown".to_owned()),
        DataType::List(element) => match element.data_type() {
            DataType::List(_) => name_of(element),
            DataType::Null => None,
            _ => name_of(element).map(|it| format!("{it}[]")),
        },
        it if it.is_string() => Some(PgType::of(field).name().to_owned()),
        DataType::UInt32 | DataType::UInt64 | DataType::Struct(_) | DataType::Map(..) => None,
        _ => Some(PgType::of(field).name().to_owned()).filter(|it| it != "another type"),
    }
}
