//! Values that clients bind to a statement's parameters.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;

use super::numbers::{EPOCH_DAYS, EPOCH_US, numeric_text};
use super::types::Format;
use crate::error::{SqlError, SqlState};

/// The value of a parameter of this type; `bytes` is `None` for NULL.
pub(crate) fn read_parameter(
    bytes: Option<&[u8]>,
    format: Format,
    data_type: &DataType,
) -> Result<ScalarValue, SqlError> {
    let Some(bytes) = bytes else {
        return Ok(ScalarValue::try_from(data_type)?);
    };
    match format {
        Format::Text => read_text(text_of(bytes)?, data_type),
        Format::Binary => read_binary(bytes, data_type),
    }
}

fn text_of(bytes: &[u8]) -> Result<&str, SqlError> {
    std::str::from_utf8(bytes).map_err(|_| {
        SqlError::new(SqlState::INVALID_ENCODING, "the text of a parameter is not UTF-8")
    })
}

fn read_text(text: &str, data_type: &DataType) -> Result<ScalarValue, SqlError> {
    let wrong = || {
        let what = format!("invalid value for a parameter of type {data_type}: {text:?}");
        SqlError::new(SqlState::INVALID_TEXT, what)
    };
    let string = ScalarValue::Utf8(Some(text.to_owned()));
    match data_type {
        DataType::Utf8 => Ok(string),
        DataType::Utf8View => Ok(ScalarValue::Utf8View(Some(text.to_owned()))),
        DataType::Boolean => match text.trim().to_ascii_lowercase().as_str() {
            "t" | "true" | "y" | "yes" | "on" | "1" => Ok(ScalarValue::Boolean(Some(true))),
            "f" | "false" | "n" | "no" | "off" | "0" => Ok(ScalarValue::Boolean(Some(false))),
            _ => Err(wrong()),
        },
        DataType::Binary | DataType::BinaryView => {
            let bytes = bytea_of(text).ok_or_else(wrong)?;
            Ok(match data_type {
                DataType::Binary => ScalarValue::Binary(Some(bytes)),
                _ => ScalarValue::BinaryView(Some(bytes)),
            })
        }
        other => string.cast_to(other).map_err(|_| wrong()),
    }
}

/// The bytes of a text in either of bytea's two forms: `\x6100`, or `a\000`.
pub(crate) fn bytea_of(text: &str) -> Option<Vec<u8>> {
    if let Some(hex) = text.strip_prefix("\\x") {
        return from_hex(hex);
    }
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        let byte = match (first, behind) {
            (b'\\', [b'\\', ..]) => {
                rest = &behind[1..];
                b'\\'
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                rest = &behind[3..];
                (a - b'0') << 6 | (b - b'0') << 3 | (c - b'0')
            }
            (b'\\', _) => return None,
            (plain, _) => plain,
        };
        bytes.push(byte);
    }
    Some(bytes)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|it| u8::try_from(it).ok());
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.as_bytes().chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

fn read_binary(bytes: &[u8], data_type: &DataType) -> Result<ScalarValue, SqlError> {
    let wrong = || {
        let what = format!("a parameter of type {data_type} has a binary value of wrong length");
        SqlError::new(SqlState::INVALID_BINARY, what)
    };
    /// The value's bytes, if there are as many.
    macro_rules! number {
        ($type:ty) => {
            <$type>::from_be_bytes(bytes.try_into().map_err(|_| wrong())?)
        };
    }
    Ok(match data_type {
        DataType::Boolean => ScalarValue::Boolean(Some(number!(u8) != 0)),
        DataType::Int8 | DataType::Int16 => ScalarValue::Int16(Some(number!(i16))),
        DataType::Int32 => ScalarValue::Int32(Some(number!(i32))),
        DataType::Int64 => ScalarValue::Int64(Some(number!(i64))),
        DataType::UInt32 => ScalarValue::UInt32(Some(number!(u32))),
        DataType::Float32 => ScalarValue::Float32(Some(number!(f32))),
        DataType::Float64 => ScalarValue::Float64(Some(number!(f64))),
        DataType::Binary => ScalarValue::Binary(Some(bytes.to_vec())),
        DataType::BinaryView => ScalarValue::BinaryView(Some(bytes.to_vec())),
        DataType::Date32 => {
            ScalarValue::Date32(Some(number!(i32).checked_add(EPOCH_DAYS).ok_or_else(wrong)?))
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            ScalarValue::Time64Microsecond(Some(number!(i64)))
        }
        DataType::Timestamp(unit, zone) => {
            let us = number!(i64).checked_add(EPOCH_US).ok_or_else(wrong)?;
            let value = ScalarValue::TimestampMicrosecond(Some(us), zone.clone());
            match unit {
                TimeUnit::Microsecond => value,
                _ => value.cast_to(data_type)?,
            }
        }
        DataType::Decimal128(..) => read_text(&numeric_text(bytes).ok_or_else(wrong)?, data_type)?,
        DataType::Utf8View => ScalarValue::Utf8View(Some(text_of(bytes)?.to_owned())),
        _ => ScalarValue::Utf8(Some(text_of(bytes)?.to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_in_both_forms() {
        for (text, expected) in [
            ("\\x6100fF", Some(&b"a\0\xff"[..])),
            ("a\\\\b\\000", Some(b"a\\b\0")),
            ("plain", Some(b"plain")),
            ("", Some(b"")),
            ("\\x6", None),
            ("\\", None),
            ("\\400", None),
        ] {
            assert_eq!(bytea_of(text).as_deref(), expected, "{text}");
        }
    }
}
