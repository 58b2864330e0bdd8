//! Decoding of parameter values that clients bind.

use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use datafusion::common::ScalarValue;

use super::arrays::array_elements;
use super::numbers::{EPOCH_DAYS, EPOCH_US, numeric_text};
use super::numerics::{list_of_numerics, numeric_of};
use super::types::{Format, JSONB, PgType, UUID};
use crate::error::{SqlError, SqlState};

/// Decodes a parameter of this type. `bytes` is `None` for NULL.
pub(crate) fn read_parameter(
    bytes: Option<&[u8]>,
    format: Format,
    (oid, data_type): (u32, &DataType),
) -> Result<ScalarValue, SqlError> {
    let Some(bytes) = bytes else {
        return Ok(ScalarValue::try_from(data_type)?);
    };
    match (format, oid) {
        (Format::Text(_), _) => read_text(text_of(bytes)?, data_type),
        (Format::Binary, JSONB) => match bytes.split_first() {
            Some((1, text)) => read_text(text_of(text)?, data_type),
            _ => Err(SqlError::new(SqlState::INVALID_BINARY, "unsupported jsonb version number")),
        },
        (Format::Binary, UUID) => {
            let bytes: [u8; 16] = bytes.try_into().map_err(|_| wrong_length(data_type))?;
            read_text(&uuid_text(bytes), data_type)
        }
        (Format::Binary, PgType::REGCLASS) => {
            let bytes: [u8; 4] = bytes.try_into().map_err(|_| wrong_length(data_type))?;
            read_text(&u32::from_be_bytes(bytes).to_string(), data_type)
        }
        (Format::Binary, _) => read_binary(bytes, data_type),
    }
}

/// Decodes a value of a binary COPY into a column of this type. A numeric keeps all its digits.
pub(crate) fn read_copied(bytes: Option<&[u8]>, of: PgType) -> Result<ScalarValue, SqlError> {
    let data_type = PgType::data_type_of(of.oid).unwrap_or(DataType::Utf8);
    match (of, bytes) {
        (PgType::NUMERIC, Some(bytes)) => {
            let text = numeric_text(bytes).ok_or_else(|| wrong_length(&data_type))?;
            Ok(ScalarValue::Utf8(Some(text)))
        }
        (PgType::NUMERIC, None) => Ok(ScalarValue::Utf8(None)),
        _ => read_parameter(bytes, Format::Binary, (of.oid, &data_type)),
    }
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        text.push_str(if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" });
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn wrong_length(data_type: &DataType) -> SqlError {
    let name = PgType::of_data(data_type).name();
    let what = format!("incorrect binary data format in parameter of type {name}: wrong length");
    SqlError::new(SqlState::INVALID_BINARY, what)
}

/// Decodes an array with at most one dimension.
fn read_binary_list(bytes: &[u8], element: &DataType) -> Result<ScalarValue, SqlError> {
    let wrong = || wrong_length(element);
    let mut rest = bytes;
    let mut next = |count: usize| -> Result<&[u8], SqlError> {
        let (taken, more) = rest.split_at_checked(count).ok_or_else(wrong)?;
        rest = more;
        Ok(taken)
    };
    let number = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().expect("four bytes"));
    let dimensions = number(next(4)?);
    next(4)?;
    let oid = number(next(4)?);
    if dimensions > 1 {
        return Err(SqlError::unsupported("multidimensional array parameters are not supported"));
    }
    let is_numeric = element.is_decimal() && oid == PgType::NUMERIC.oid.cast_signed();
    if !is_numeric && PgType::data_type_of(oid.cast_unsigned()).as_ref() != Some(element) {
        let name = PgType::of_data(element).name();
        let what =
            format!("binary data for array of type {name} has elements of the type with OID {oid}");
        return Err(SqlError::new(SqlState::INVALID_BINARY, what));
    }
    let mut elements = Vec::new();
    if dimensions == 1 {
        let count = number(next(4)?);
        if number(next(4)?) != 1 {
            return Err(SqlError::unsupported("array parameters with bounds are not supported"));
        }
        for _ in 0..count {
            let value = match usize::try_from(number(next(4)?)) {
                Ok(length) => Some(next(length)?),
                Err(_) => None,
            };
            elements.push(read_parameter(value, Format::Binary, (oid.cast_unsigned(), element))?);
        }
    }
    if !rest.is_empty() {
        return Err(wrong());
    }
    list_of(&elements, element)
}

fn list_of(elements: &[ScalarValue], element: &DataType) -> Result<ScalarValue, SqlError> {
    match element.is_decimal() {
        true => list_of_numerics(elements),
        false => Ok(ScalarValue::List(ScalarValue::new_list_nullable(elements, element))),
    }
}

pub(crate) fn text_of(bytes: &[u8]) -> Result<&str, SqlError> {
    std::str::from_utf8(bytes).map_err(|_| {
        SqlError::new(
            SqlState::INVALID_ENCODING,
            "invalid byte sequence for encoding \"UTF8\" in a parameter",
        )
    })
}

fn read_text(text: &str, data_type: &DataType) -> Result<ScalarValue, SqlError> {
    let wrong = || {
        let name = PgType::of_data(data_type).name();
        if data_type.is_integer() && text.trim().parse::<i128>().is_ok() {
            let what = format!("value {text:?} is out of range for type {name}");
            return SqlError::new(SqlState::OUT_OF_RANGE, what);
        }
        let what = format!("invalid input syntax for type {name}: {text:?}");
        SqlError::new(SqlState::INVALID_TEXT, what)
    };
    let string = ScalarValue::Utf8(Some(text.to_owned()));
    match data_type {
        DataType::Utf8 => Ok(string),
        DataType::Utf8View => Ok(ScalarValue::Utf8View(Some(text.to_owned()))),
        DataType::Boolean => match text.trim().to_ascii_lowercase().as_str() {
            "t" | "tr" | "tru" | "true" | "y" | "ye" | "yes" | "on" | "1" => {
                Ok(ScalarValue::Boolean(Some(true)))
            }
            "f" | "fa" | "fal" | "fals" | "false" | "n" | "no" | "of" | "off" | "0" => {
                Ok(ScalarValue::Boolean(Some(false)))
            }
            _ => Err(wrong()),
        },
        DataType::Binary | DataType::BinaryView => {
            let bytes = bytea_of(text).ok_or_else(wrong)?;
            Ok(match data_type {
                DataType::Binary => ScalarValue::Binary(Some(bytes)),
                _ => ScalarValue::BinaryView(Some(bytes)),
            })
        }
        DataType::List(of) => {
            let read = |it: &Option<String>| match it {
                Some(text) => read_text(text, of.data_type()),
                None => Ok(ScalarValue::try_from(of.data_type())?),
            };
            let elements = array_elements(text)?;
            let elements = elements.iter().map(read).collect::<Result<Vec<_>, _>>()?;
            list_of(&elements, of.data_type())
        }
        it if it.is_decimal() => numeric_of(text),
        other => string.cast_to(other).map_err(|_| wrong()),
    }
}

/// Decodes a text in either format of bytea: `\x6100`, or `a\000`.
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

/// Rejects the values that stand for -infinity and infinity.
fn check_finite(value: i64, (first, last): (i64, i64)) -> Result<(), SqlError> {
    let word = match value {
        it if it == first => "-infinity",
        it if it == last => "infinity",
        _ => return Ok(()),
    };
    Err(SqlError::unsupported(format!("date/time value {word:?} is not supported"))
        .with_hint("Pass a date that all others precede or follow."))
}

fn read_binary(bytes: &[u8], data_type: &DataType) -> Result<ScalarValue, SqlError> {
    let wrong = || wrong_length(data_type);
    /// Converts the bytes if their number matches.
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
            let days = number!(i32);
            check_finite(days.into(), (i32::MIN.into(), i32::MAX.into()))?;
            ScalarValue::Date32(Some(days.checked_add(EPOCH_DAYS).ok_or_else(wrong)?))
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            ScalarValue::Time64Microsecond(Some(number!(i64)))
        }
        DataType::Timestamp(unit, zone) => {
            let us = number!(i64);
            check_finite(us, (i64::MIN, i64::MAX))?;
            let us = us.checked_add(EPOCH_US).ok_or_else(wrong)?;
            let value = ScalarValue::TimestampMicrosecond(Some(us), zone.clone());
            match unit {
                TimeUnit::Microsecond => value,
                _ => value.cast_to(data_type)?,
            }
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let (us, rest) = bytes.split_first_chunk().ok_or_else(wrong)?;
            let (days, months) = rest.split_first_chunk().ok_or_else(wrong)?;
            let months = i32::from_be_bytes(months.try_into().map_err(|_| wrong())?);
            let ns = i64::from_be_bytes(*us).checked_mul(1_000).ok_or_else(wrong)?;
            let value = IntervalMonthDayNano::new(months, i32::from_be_bytes(*days), ns);
            ScalarValue::IntervalMonthDayNano(Some(value))
        }
        DataType::List(of) => read_binary_list(bytes, of.data_type())?,
        it if it.is_decimal() => numeric_of(&numeric_text(bytes).ok_or_else(wrong)?)?,
        DataType::Utf8View => ScalarValue::Utf8View(Some(text_of(bytes)?.to_owned())),
        DataType::Utf8 => ScalarValue::Utf8(Some(text_of(bytes)?.to_owned())),
        other => {
            let name = PgType::of_data(other).name();
            let what = format!("binary parameters of type {name} are not supported");
            return Err(SqlError::unsupported(what));
        }
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
