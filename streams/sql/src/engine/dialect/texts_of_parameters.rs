//! Values of parameters that clients send as texts, read as literals of their type are.

use std::time::{SystemTime, UNIX_EPOCH};

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ColumnarValue;

use super::conversions::{To, check_time, converted};
use super::interval_texts::{day_of, spelled};
use super::jsonb;
use super::rewrites::date;
use super::text_functions::standard_uuid;
use crate::error::SqlError;
use crate::wire::{DAY_US, PgType, UUID, array_elements};

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
        DataType::Utf8 if oid == UUID => return Ok(Some(string(&standard_uuid(text)?))),
        DataType::List(of) if oid == PgType::UUIDS => {
            let elements = array_elements(text)?.into_iter().map(|it| {
                let uuid = it.map(|it| standard_uuid(&it)).transpose()?;
                Ok(ScalarValue::Utf8(uuid))
            });
            let elements = elements.collect::<Result<Vec<_>, SqlError>>()?;
            let list = ScalarValue::new_list_nullable(&elements, of.data_type());
            return Ok(Some(ScalarValue::List(list)));
        }
        DataType::Interval(_) => {
            let units = spelled(text)?;
            let units = string(units.as_deref().unwrap_or(text));
            return Ok(Some(units.cast_to(data_type)?));
        }
        DataType::Date32 => {
            let date = match time_of_word(text) {
                Some(time_us) => microseconds(time_us).cast_to(data_type)?,
                None => {
                    let day = day_of(text)?;
                    date(day)?;
                    string(day).cast_to(data_type)?
                }
            };
            return Ok(Some(date));
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            check_time(text)?;
            return Ok(Some(string(text.trim_ascii()).cast_to(data_type)?));
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            if let Some(time_us) = time_of_word(text) {
                return Ok(Some(microseconds(time_us).cast_to(data_type)?));
            }
            if zone.is_some() { To::Timestamptz } else { To::Timestamp }
        }
        _ => return Ok(None),
    };
    match converted(to, &ColumnarValue::Scalar(string(text)))? {
        ColumnarValue::Scalar(value) => Ok(Some(value.cast_to(data_type)?)),
        ColumnarValue::Array(_) => Ok(None),
    }
}

fn microseconds(time_us: i64) -> ScalarValue {
    ScalarValue::TimestampMicrosecond(Some(time_us), None)
}

/// Returns the time that a word names: now, or midnight of a day near today.
fn time_of_word(text: &str) -> Option<i64> {
    let now = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
    };
    let day = |distance: i64| (now().div_euclid(DAY_US) + distance) * DAY_US;
    Some(match text.trim_ascii().to_ascii_lowercase().as_str() {
        "epoch" => 0,
        "now" => now(),
        "today" => day(0),
        "tomorrow" => day(1),
        "yesterday" => day(-1),
        _ => return None,
    })
}
