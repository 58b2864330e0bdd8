//! Encoding of live queries' values in the format that the client requested.

use std::fmt::Write;

use bytes::{BufMut, BytesMut};
use live_queries::{Type, Value};

use super::answers::{put_message, put_with_length};
use super::numbers::{EPOCH_US, Interval, IntervalStyle, put_integer, put_interval, put_numeric};
use super::types::{Format, Formats};

/// Appends a DataRow message.
pub(crate) fn put_live_row(
    out: &mut BytesMut,
    row: &[Value<'_>],
    types: &[Type],
    formats: &Formats,
) {
    put_message(out, b'D', |out| {
        out.put_u16(u16::try_from(row.len()).expect("columns are bounded"));
        for (index, value) in row.iter().enumerate() {
            match value.is_null() {
                true => out.put_i32(-1),
                false => put_with_length(out, 0, |out| {
                    put_live_value(out, value, types[index], formats.of(index));
                }),
            }
        }
    });
}

/// Appends a value other than NULL.
pub(crate) fn put_live_value(
    out: &mut BytesMut,
    value: &Value<'_>,
    data_type: Type,
    format: Format,
) {
    const MEMORY: &str = "memory takes all";
    match (format, value) {
        (_, Value::Text(text) | Value::Json(text)) => out.put_slice(text.as_bytes()),
        (Format::Text(_), Value::Bool(it)) => out.put_u8(if *it { b't' } else { b'f' }),
        (Format::Text(_), Value::Int(it)) => put_integer(out, *it),
        (Format::Text(style @ IntervalStyle::Iso8601), Value::Interval(us)) => {
            put_interval(out, Interval { us: *us, ..Interval::default() }, style);
        }
        (Format::Text(_), _) => write!(out, "{value}").expect(MEMORY),
        (Format::Binary, Value::Bool(it)) => out.put_u8(u8::from(*it)),
        (Format::Binary, Value::Int(it)) => match (data_type, i32::try_from(*it)) {
            (Type::Int4, Ok(it)) => out.put_i32(it),
            _ => out.put_i64(*it),
        },
        (Format::Binary, Value::Float(it)) => out.put_f64(*it),
        (Format::Binary, Value::Numeric(_)) => put_numeric(out, &value.to_string()),
        (Format::Binary, Value::Bytes(bytes)) => out.put_slice(bytes),
        (Format::Binary, Value::Time(us)) => out.put_i64(us.wrapping_sub(EPOCH_US)),
        (Format::Binary, Value::Interval(us)) => {
            out.put_i64(*us);
            // Days and months.
            out.put_i64(0);
        }
        (Format::Binary, Value::Null) => {}
    }
}
