//! Names of columns and types in SQL.

use sqlparser::ast;

use crate::error::{SqlError, SqlState};
use crate::types::Type;

/// Returns an identifier, folded to lower case unless it is quoted.
pub(crate) fn folded(name: &ast::Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

pub(super) fn undefined_column(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"))
}

/// Returns the type that a name in a cast refers to.
pub(crate) fn type_of(name: &ast::DataType) -> Result<Type, SqlError> {
    use ast::DataType;
    Ok(match name {
        DataType::Bool | DataType::Boolean => Type::Bool,
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => Type::Int4,
        DataType::BigInt(None) | DataType::Int8(None) => Type::Int8,
        DataType::Numeric(ast::ExactNumberInfo::None)
        | DataType::Decimal(ast::ExactNumberInfo::None) => Type::Numeric,
        DataType::DoublePrecision | DataType::Float8 | DataType::Double(_) | DataType::Float(_) => {
            Type::Float8
        }
        DataType::Text | DataType::Varchar(None) | DataType::CharacterVarying(None) => Type::Text,
        DataType::Bytea => Type::Bytea,
        DataType::Timestamp(None, ast::TimezoneInfo::Tz | ast::TimezoneInfo::WithTimeZone) => {
            Type::Timestamptz
        }
        DataType::Interval { .. } => Type::Interval,
        DataType::JSON | DataType::JSONB => Type::Json,
        other => return Err(SqlError::not_supported(format_args!("the type {other}"))),
    })
}
