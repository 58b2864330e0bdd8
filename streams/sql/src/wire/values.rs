//! Encoding of the engine's rows as messages, each value in the format that the client requested.

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringViewBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Date32Type, Decimal128Type, Decimal256Type, Field,
    Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType,
    IntervalUnit, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, UInt32Type,
};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use super::answers::{Answers, put_message, put_with_length};
use super::copy::{CopyOut, put_copy_row};
use super::numbers::{
    EPOCH_DAYS, EPOCH_US, FLOAT4_DIGITS, FLOAT8_DIGITS, Interval, IntervalStyle, decimal_text,
    put_date, put_float, put_integer, put_interval, put_numeric, put_time, put_timestamp,
};
use super::types::{Format, Formats, PgType, UUID};

/// Appends a DataRow message for each of these rows.
pub(crate) fn put_rows(
    out: &mut BytesMut,
    batch: &RecordBatch,
    rows: Range<usize>,
    formats: &Formats,
) -> Result<(), ArrowError> {
    let plain: Vec<ArrayRef> = batch.columns().iter().map(plain).collect::<Result<_, _>>()?;
    let schema = batch.schema_ref();
    let columns: Vec<Column<'_>> = plain
        .iter()
        .enumerate()
        .map(|(index, array)| Column::of(array, schema.field(index), formats.of(index)))
        .collect::<Result<_, _>>()?;
    let count = u16::try_from(columns.len()).expect("columns are bounded");
    for row in rows {
        put_message(out, b'D', |out| {
            out.put_u16(count);
            for column in &columns {
                match column.array.is_null(row) {
                    true => out.put_i32(-1),
                    false => put_with_length(out, 0, |out| column.put(row, out)),
                }
            }
        });
    }
    Ok(())
}

/// Appends the COPY data of each of these rows.
pub(crate) fn put_copy_rows(
    answers: &mut Answers,
    batch: &RecordBatch,
    rows: Range<usize>,
    copy: &mut CopyOut,
) -> Result<(), ArrowError> {
    let plain: Vec<ArrayRef> = batch.columns().iter().map(plain).collect::<Result<_, _>>()?;
    let columns: Vec<Column<'_>> = plain
        .iter()
        .zip(batch.schema_ref().fields())
        .map(|(array, field)| Column::of(array, field, copy.value_format()))
        .collect::<Result<_, _>>()?;
    for row in rows {
        put_copy_row(answers, columns.len(), copy, &|column, out| {
            let column = &columns[column];
            let is_there = !column.array.is_null(row);
            if is_there {
                column.put(row, out);
            }
            is_there
        });
    }
    Ok(())
}

/// Passes each value as text to `show`. `None` is NULL.
pub(crate) fn put_texts(
    array: &ArrayRef,
    show: &mut dyn FnMut(Option<&[u8]>),
) -> Result<(), ArrowError> {
    let array = plain(array)?;
    let column = Column::as_text(&array)?;
    let mut out = BytesMut::new();
    for row in 0..array.len() {
        out.clear();
        if array.is_null(row) {
            show(None);
            continue;
        }
        column.put(row, &mut out);
        show(Some(&out));
    }
    Ok(())
}

/// Casts to one of the few types that the encoding supports.
fn plain(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let to = match array.data_type() {
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        // Arrays of type Null have no validity bitmap.
        DataType::Null => DataType::Utf8View,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 => DataType::Float32,
        DataType::LargeUtf8 | DataType::Utf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            DataType::BinaryView
        }
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(TimeUnit::Nanosecond) => {
            DataType::Time64(TimeUnit::Microsecond)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => return Ok(array.clone()),
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        _ => return Ok(array.clone()),
    };
    let cast = cast(array, &to)?;
    match to == DataType::Utf8View || to == *cast.data_type() {
        true => Ok(cast),
        false => plain(&cast),
    }
}

struct Column<'a> {
    array: &'a ArrayRef,
    is_jsonb: bool,
    /// Type with which texts are described to clients.
    described: u32,
    format: Format,
    other: Option<ArrayFormatter<'a>>,
}

/// First byte of the binary form of jsonb.
const JSONB_VERSION: u8 = 1;

const OTHER: FormatOptions<'static> = FormatOptions::new().with_null("NULL");

impl<'a> Column<'a> {
    fn of(array: &'a ArrayRef, field: &Field, format: Format) -> Result<Self, ArrowError> {
        let is_jsonb = PgType::of(field) == PgType::JSONB;
        let is_shown = matches!(array.data_type(), DataType::Utf8View | DataType::List(_));
        let described = if is_shown { PgType::described(field).0.oid } else { 0 };
        Ok(Self { is_jsonb, described, format, ..Self::as_text(array)? })
    }

    fn as_text(array: &'a ArrayRef) -> Result<Self, ArrowError> {
        let is_known = matches!(
            array.data_type(),
            DataType::Boolean
                | DataType::Int16
                | DataType::Int32
                | DataType::Int64
                | DataType::UInt32
                | DataType::Float32
                | DataType::Float64
                | DataType::Decimal128(..)
                | DataType::Decimal256(..)
                | DataType::Utf8View
                | DataType::BinaryView
                | DataType::Date32
                | DataType::Time64(TimeUnit::Microsecond)
                | DataType::Timestamp(TimeUnit::Microsecond, _)
                | DataType::Interval(_)
                | DataType::List(_)
                | DataType::Null
        );
        let other = (!is_known).then(|| ArrayFormatter::try_new(array, &OTHER)).transpose()?;
        Ok(Self { array, is_jsonb: false, described: 0, format: Format::TEXT, other })
    }

    /// Returns whether the column is an array of texts.
    fn has_texts(&self) -> bool {
        matches!(self.array.data_type(), DataType::List(it) if it.data_type().is_string())
    }

    /// Appends the value of a row that is not NULL.
    fn put(&self, row: usize, out: &mut BytesMut) {
        if self.is_jsonb && self.format == Format::Binary {
            out.put_u8(JSONB_VERSION);
        }
        if let Some(other) = &self.other {
            // Types without a binary format here are read as text by all clients that request it.
            return write!(out, "{}", other.value(row)).expect("memory takes all");
        }
        match self.format {
            Format::Text(style) => put_text(self.array, row, style, out),
            Format::Binary if self.described == PgType::NUMERIC.oid => {
                put_numeric(out, self.array.as_string_view().value(row));
            }
            Format::Binary if self.described == PgType::NUMERICS && self.has_texts() => {
                put_numeric_texts(&self.array.as_list::<i32>().value(row), out);
            }
            Format::Binary if self.described == UUID => {
                put_uuid(self.array.as_string_view().value(row), out);
            }
            Format::Binary if self.described == PgType::REGTYPE => {
                out.put_u32(PgType::oid_of(self.array.as_string_view().value(row)));
            }
            Format::Binary => put_binary(self.array, row, out),
        }
    }
}

/// Appends the bytes of a uuid in its standard form.
fn put_uuid(text: &str, out: &mut BytesMut) {
    let digits: Vec<_> = text.chars().filter_map(|it| it.to_digit(16)).collect();
    for pair in digits.chunks_exact(2) {
        out.put_u8(u8::try_from(pair[0] << 4 | pair[1]).expect("two digits"));
    }
}

fn put_text(array: &ArrayRef, row: usize, style: IntervalStyle, out: &mut BytesMut) {
    const MEMORY: &str = "memory takes all";
    match array.data_type() {
        DataType::Boolean => out.put_u8(if array.as_boolean().value(row) { b't' } else { b'f' }),
        DataType::Int16 => {
            write!(out, "{}", array.as_primitive::<Int16Type>().value(row)).expect(MEMORY);
        }
        DataType::Int32 => {
            write!(out, "{}", array.as_primitive::<Int32Type>().value(row)).expect(MEMORY);
        }
        DataType::Int64 => put_integer(out, array.as_primitive::<Int64Type>().value(row)),
        DataType::UInt32 => {
            write!(out, "{}", array.as_primitive::<UInt32Type>().value(row)).expect(MEMORY);
        }
        DataType::Float32 => {
            let value = f64::from(array.as_primitive::<Float32Type>().value(row));
            put_float(out, value, FLOAT4_DIGITS);
        }
        DataType::Float64 => {
            put_float(out, array.as_primitive::<Float64Type>().value(row), FLOAT8_DIGITS);
        }
        DataType::Decimal128(..) | DataType::Decimal256(..) => {
            out.put_slice(decimal(array, row).as_bytes());
        }
        DataType::Utf8View => out.put_slice(array.as_string_view().value(row).as_bytes()),
        DataType::BinaryView => {
            out.put_slice(b"\\x");
            for byte in array.as_binary_view().value(row) {
                write!(out, "{byte:02x}").expect(MEMORY);
            }
        }
        DataType::Date32 => {
            put_date(out, i64::from(array.as_primitive::<Date32Type>().value(row)));
        }
        DataType::Time64(_) => {
            put_time(out, array.as_primitive::<Time64MicrosecondType>().value(row));
        }
        DataType::Timestamp(_, zone) => {
            let us = array.as_primitive::<TimestampMicrosecondType>().value(row);
            put_timestamp(out, us, if zone.is_some() { "+00" } else { "" });
        }
        DataType::Interval(_) => {
            put_interval(out, interval(array, row), style);
        }
        DataType::List(_) => put_list(&array.as_list::<i32>().value(row), style, out),
        _ => {}
    }
}

/// Appends an array as text. Ambiguous elements are quoted.
fn put_list(elements: &ArrayRef, style: IntervalStyle, out: &mut BytesMut) {
    out.put_u8(b'{');
    let elements = plain(elements).unwrap_or_else(|_| elements.clone());
    for index in 0..elements.len() {
        if index > 0 {
            out.put_u8(b',');
        }
        if elements.is_null(index) {
            out.put_slice(b"NULL");
            continue;
        }
        let mut element = BytesMut::new();
        put_text(&elements, index, style, &mut element);
        let is_plain = !element.is_empty()
            && !element.eq_ignore_ascii_case(b"null")
            && !element.iter().any(|byte| b"{},\"\\ \t\r\n".contains(byte));
        let is_nested = matches!(elements.data_type(), DataType::List(_));
        if is_plain || is_nested {
            out.put_slice(&element);
            continue;
        }
        out.put_u8(b'"');
        for byte in element {
            if matches!(byte, b'"' | b'\\') {
                out.put_u8(b'\\');
            }
            out.put_u8(byte);
        }
        out.put_u8(b'"');
    }
    out.put_u8(b'}');
}

fn put_binary(array: &ArrayRef, row: usize, out: &mut BytesMut) {
    match array.data_type() {
        DataType::Boolean => out.put_u8(u8::from(array.as_boolean().value(row))),
        DataType::Int16 => out.put_i16(array.as_primitive::<Int16Type>().value(row)),
        DataType::Int32 => out.put_i32(array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => out.put_i64(array.as_primitive::<Int64Type>().value(row)),
        DataType::UInt32 => out.put_u32(array.as_primitive::<UInt32Type>().value(row)),
        DataType::Float32 => out.put_f32(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => out.put_f64(array.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal128(..) | DataType::Decimal256(..) => {
            put_numeric(out, &decimal(array, row));
        }
        DataType::BinaryView => out.put_slice(array.as_binary_view().value(row)),
        DataType::Date32 => {
            out.put_i32(array.as_primitive::<Date32Type>().value(row).wrapping_sub(EPOCH_DAYS));
        }
        DataType::Time64(_) => {
            out.put_i64(array.as_primitive::<Time64MicrosecondType>().value(row));
        }
        DataType::Timestamp(..) => {
            let us = array.as_primitive::<TimestampMicrosecondType>().value(row);
            out.put_i64(us.wrapping_sub(EPOCH_US));
        }
        DataType::Interval(_) => {
            let Interval { months, days, us } = interval(array, row);
            out.put_i64(us);
            out.put_i32(days);
            out.put_i32(months);
        }
        DataType::List(_) => put_binary_list(&array.as_list::<i32>().value(row), out),
        _ => put_text(array, row, IntervalStyle::default(), out),
    }
}

/// Appends a binary array: one dimension with lower bound 1.
fn put_binary_list(elements: &ArrayRef, out: &mut BytesMut) {
    let element = PgType::of_data(elements.data_type());
    let elements = plain(elements).unwrap_or_else(|_| elements.clone());
    put_elements(&elements, element, out, |index, out| put_binary(&elements, index, out));
}

/// Appends a binary array of numerics that are given as texts.
fn put_numeric_texts(elements: &ArrayRef, out: &mut BytesMut) {
    let elements = plain(elements).unwrap_or_else(|_| elements.clone());
    put_elements(&elements, PgType::NUMERIC, out, |index, out| {
        put_numeric(out, elements.as_string_view().value(index));
    });
}

fn put_elements(
    elements: &ArrayRef,
    element: PgType,
    out: &mut BytesMut,
    put: impl Fn(usize, &mut BytesMut),
) {
    out.put_i32(i32::from(!elements.is_empty()));
    out.put_i32(i32::from(elements.null_count() > 0));
    out.put_u32(element.oid);
    if elements.is_empty() {
        return;
    }
    out.put_i32(i32::try_from(elements.len()).expect("arrays of one row are bounded"));
    out.put_i32(1);
    for index in 0..elements.len() {
        match elements.is_null(index) {
            true => out.put_i32(-1),
            false => put_with_length(out, 0, |out| put(index, out)),
        }
    }
}

fn decimal(array: &ArrayRef, row: usize) -> String {
    let (digits, precision, scale) = match array.as_primitive_opt::<Decimal256Type>() {
        Some(array) => (array.value(row).to_string(), array.precision(), array.scale()),
        None => {
            let array = array.as_primitive::<Decimal128Type>();
            (array.value(row).to_string(), array.precision(), array.scale())
        }
    };
    let text = decimal_text(&digits, scale);
    // The original number of fractional digits is not known at this precision.
    match precision >= DECIMAL128_MAX_PRECISION && scale > 0 {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Converts values to their text output format.
pub(crate) fn output_texts(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let plain = plain(array)?;
    if *plain.data_type() == DataType::Utf8View {
        return Ok(plain);
    }
    let column = Column::as_text(&plain)?;
    let mut texts = StringViewBuilder::with_capacity(plain.len());
    let mut text = BytesMut::new();
    for row in 0..plain.len() {
        if plain.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        column.put(row, &mut text);
        texts.append_value(String::from_utf8_lossy(&text));
    }
    Ok(Arc::new(texts.finish()))
}

fn interval(array: &ArrayRef, row: usize) -> Interval {
    let it = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
    Interval { months: it.months, days: it.days, us: it.nanoseconds / 1_000 }
}
