//! Values of parameters that clients send as texts, read as literals of their type are.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ColumnarValue;

use super::conversions::{To, converted};
use super::interval_texts::spelled;
use super::jsonb;
use crate::error::SqlError;
use crate::wire::PgType;

/// Reads the text of a parameter of a query. Returns `None` if its type needs no rules of
/// PostgreSQL.
pub(crate) fn value_of_parameter(
    text: &str,
    (oid, data_type): (u32, &DataType),
) -> Result<Option<ScalarValue>, SqlError> {
    let string = |text: &str| ScalarValue::Utf8(Some(text.to_owned()));
    let to = match data_type {
        DataType::Utf8 if oid == PgType::JSON.oid => {
            jsonb::check(text)?;
            return Ok(Some(string(text)));
        }
        DataType::Utf8 if oid == PgType::JSONB.oid => {
            return Ok(Some(string(&jsonb::canonical(text)?)));
        }
        DataType::Interval(_) => {
            let units = spelled(text)?;
            let units = string(units.as_deref().unwrap_or(text));
            return Ok(Some(units.cast_to(data_type)?));
        }
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => To::Timestamptz,
        DataType::Timestamp(TimeUnit::Microsecond, None) => To::Timestamp,
        _ => return Ok(None),
    };
    match converted(to, &ColumnarValue::Scalar(string(text)))? {
        ColumnarValue::Scalar(value) => Ok(Some(value.cast_to(data_type)?)),
        ColumnarValue::Array(_) => Ok(None),
    }
}
