//! Functions of bytea: single bytes and bits, encodings, hashes.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;
use ring::digest;

use super::by_row::{Body, Returns, Row, function, is_text, text_field, text_value};
use crate::error::{SqlError, SqlState};

/// Functions that implement `encode` and `decode` with the formats that the engine lacks.
pub(super) const ESCAPED: &str = "bytes_escaped";
pub(super) const UNESCAPED: &str = "bytes_unescaped";
pub(super) const OF_HEX: &str = "bytes_of_hex";

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    const ALL: &[(&str, Returns, Body)] = &[
        (
            ESCAPED,
            |fields| of(fields, "b", text_field()),
            |row| Ok(ScalarValue::Utf8(bytes(row).map(escaped))),
        ),
        (
            UNESCAPED,
            |fields| of(fields, "t", bytes_field()),
            |row| Ok(ScalarValue::Binary(row.text(0).map(unescaped).transpose()?)),
        ),
        (
            OF_HEX,
            |fields| of(fields, "t", bytes_field()),
            |row| Ok(ScalarValue::Binary(row.text(0).map(of_hex).transpose()?)),
        ),
        (
            "bit_count",
            |fields| of(fields, "b", long_field()),
            |row| {
                let ones = |it: &[u8]| it.iter().map(|it| i64::from(it.count_ones())).sum();
                Ok(ScalarValue::Int64(bytes(row).map(ones)))
            },
        ),
        ("convert_from", |fields| of(fields, "bt", text_field()), convert_from),
        ("convert_to", |fields| of(fields, "tt", bytes_field()), convert_to),
        ("get_byte", |fields| of(fields, "bi", int_field()), |row| get(row, Part::Byte)),
        ("get_bit", |fields| of(fields, "bi", int_field()), |row| get(row, Part::Bit)),
        ("set_byte", |fields| of(fields, "bii", bytes_field()), |row| set(row, Part::Byte)),
        ("set_bit", |fields| of(fields, "bii", bytes_field()), |row| set(row, Part::Bit)),
        ("sha256", |fields| of(fields, "b", bytes_field()), |row| hash(row, &digest::SHA256)),
        ("sha384", |fields| of(fields, "b", bytes_field()), |row| hash(row, &digest::SHA384)),
        ("sha512", |fields| of(fields, "b", bytes_field()), |row| hash(row, &digest::SHA512)),
    ];
    ALL.iter().map(|(name, returns, body)| function(name, *returns, *body)).collect()
}

fn bytes_field() -> Field {
    Field::new("", DataType::Binary, true)
}

fn int_field() -> Field {
    Field::new("", DataType::Int32, true)
}

fn long_field() -> Field {
    Field::new("", DataType::Int64, true)
}

/// Checks arguments by letters: `b` bytea, `t` text, `i` integer.
fn of(fields: &[FieldRef], letters: &str, result: Field) -> Result<Field, String> {
    let is_one = |(field, letter): (&FieldRef, char)| {
        let of = field.data_type();
        of.is_null()
            || match letter {
                'b' => of.is_binary(),
                't' => is_text(field),
                _ => of.is_integer(),
            }
    };
    match fields.len() == letters.len() && fields.iter().zip(letters.chars()).all(is_one) {
        true => Ok(result),
        false => Err(String::new()),
    }
}

fn bytes<'a>(row: &'a Row<'_>) -> Option<&'a [u8]> {
    match row.values.first()? {
        ScalarValue::Binary(bytes)
        | ScalarValue::LargeBinary(bytes)
        | ScalarValue::BinaryView(bytes) => bytes.as_deref(),
        _ => None,
    }
}

fn integer(row: &Row<'_>, index: usize) -> Result<Option<i64>, SqlError> {
    match row.values[index].cast_to(&DataType::Int64)? {
        ScalarValue::Int64(found) => Ok(found),
        _ => Ok(None),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut out = String::new();
    for byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            0 | 128.. => out.push_str(&format!("\\{byte:03o}")),
            other => out.push(char::from(*other)),
        }
    }
    out
}

fn unescaped(text: &str) -> Result<Vec<u8>, SqlError> {
    let invalid = || SqlError::new(SqlState::INVALID_TEXT, "invalid input syntax for type bytea");
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = match (first, after) {
            (b'\\', [b'\\', after @ ..]) => {
                out.push(b'\\');
                after
            }
            (b'\\', [one @ b'0'..=b'3', two @ b'0'..=b'7', three @ b'0'..=b'7', after @ ..]) => {
                out.push((one - b'0') << 6 | (two - b'0') << 3 | (three - b'0'));
                after
            }
            (b'\\', _) => return Err(invalid()),
            (other, after) => {
                out.push(*other);
                after
            }
        };
    }
    Ok(out)
}

fn of_hex(text: &str) -> Result<Vec<u8>, SqlError> {
    let error = |what: String| SqlError::new(SqlState::INVALID_PARAMETER, what);
    let digits = text.chars().filter(|it| !matches!(it, ' ' | '\n' | '\t' | '\r'));
    let digits = digits.map(|it| match it.to_digit(16).and_then(|it| u8::try_from(it).ok()) {
        Some(digit) => Ok(digit),
        None => Err(error(format!("invalid hexadecimal digit: {it:?}"))),
    });
    let digits = digits.collect::<Result<Vec<_>, _>>()?;
    match digits.as_chunks::<2>() {
        (pairs, []) => Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect()),
        _ => Err(error("invalid hexadecimal data: odd number of digits".to_owned())),
    }
}

fn is_utf8(name: &str) -> Result<(), SqlError> {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    match letters.collect::<String>().to_ascii_lowercase().as_str() {
        "utf8" | "unicode" => Ok(()),
        _ => Err(SqlError::unsupported(format!("encoding {name:?} is not supported"))),
    }
}

fn convert_from(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let (Some(bytes), Some(encoding)) = (bytes(row), row.text(1)) else {
        return Ok(ScalarValue::Utf8(None));
    };
    is_utf8(encoding)?;
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text_value(text)),
        _ => {
            let what = "invalid byte sequence for encoding \"UTF8\"";
            Err(SqlError::new(SqlState::INVALID_ENCODING, what))
        }
    }
}

fn convert_to(row: &Row<'_>) -> Result<ScalarValue, SqlError> {
    let (Some(text), Some(encoding)) = (row.text(0), row.text(1)) else {
        return Ok(ScalarValue::Binary(None));
    };
    is_utf8(encoding)?;
    Ok(ScalarValue::Binary(Some(text.as_bytes().to_vec())))
}

fn hash(row: &Row<'_>, algorithm: &'static digest::Algorithm) -> Result<ScalarValue, SqlError> {
    let hashed = |it: &[u8]| digest::digest(algorithm, it).as_ref().to_vec();
    Ok(ScalarValue::Binary(bytes(row).map(hashed)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Byte,
    Bit,
}

/// Returns the index of the byte with a part, and the part's place in it.
fn place(part: Part, index: i64, bytes: &[u8]) -> Result<(usize, u32), SqlError> {
    let count = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
    let (byte, bit) = match part {
        Part::Byte => (index, 0),
        Part::Bit => (index.div_euclid(8), u32::try_from(index.rem_euclid(8)).unwrap_or(0)),
    };
    match usize::try_from(byte) {
        Ok(found) if byte < count => Ok((found, bit)),
        _ => {
            let last = if part == Part::Bit { count * 8 } else { count } - 1;
            let what = format!("index {index} out of valid range, 0..{last}");
            Err(SqlError::new(SqlState("2202E"), what))
        }
    }
}

fn get(row: &Row<'_>, part: Part) -> Result<ScalarValue, SqlError> {
    let (Some(bytes), Some(index)) = (bytes(row), integer(row, 1)?) else {
        return Ok(ScalarValue::Int32(None));
    };
    let (byte, bit) = place(part, index, bytes)?;
    let found = match part {
        Part::Byte => bytes[byte],
        Part::Bit => bytes[byte] >> bit & 1,
    };
    Ok(ScalarValue::Int32(Some(i32::from(found))))
}

fn set(row: &Row<'_>, part: Part) -> Result<ScalarValue, SqlError> {
    let (Some(old), Some(index), Some(value)) = (bytes(row), integer(row, 1)?, integer(row, 2)?)
    else {
        return Ok(ScalarValue::Binary(None));
    };
    let (byte, bit) = place(part, index, old)?;
    let mut new = old.to_vec();
    match part {
        Part::Byte => new[byte] = value.to_le_bytes()[0],
        Part::Bit if !matches!(value, 0 | 1) => {
            return Err(SqlError::new(SqlState::INVALID_PARAMETER, "new bit must be 0 or 1"));
        }
        Part::Bit => new[byte] = new[byte] & !(1 << bit) | value.to_le_bytes()[0] << bit,
    }
    Ok(ScalarValue::Binary(Some(new)))
}
