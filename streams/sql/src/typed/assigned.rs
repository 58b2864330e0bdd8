//! Assignment casts: converts values of a query to the type of the column that they are inserted
//! into, as PostgreSQL does, or fails with its error code.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, Float64Array, Int32Array, Int64Array,
    StringViewArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Float64Type, Int64Type, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::arrow::error::ArrowError;
use live_queries::Type;

use crate::error::{SqlError, SqlState};
use crate::wire::{PgType, bytea_of, put_texts};

/// A target column.
#[derive(Clone, Copy)]
pub(crate) struct Assigned<'a> {
    pub(crate) name: &'a str,
    pub(crate) data_type: Type,
}

impl Assigned<'_> {
    /// Casts values to the type of the column.
    ///
    /// # Errors
    /// The types are incompatible, or a value is invalid.
    pub(crate) fn of(&self, array: &ArrayRef) -> Result<ArrayRef, SqlError> {
        let from = array.data_type();
        let is_text = from.is_string() || *from == DataType::Null;
        let to = |to: &DataType| cast(array, to).map_err(|error| self.wrong(error.to_string()));
        Ok(match self.data_type {
            Type::Int4 => {
                let integers = self.integers(array)?;
                let narrow = integers.iter().map(|it| it.map(i32::try_from).transpose());
                let narrow = narrow.collect::<Result<Int32Array, _>>();
                Arc::new(narrow.map_err(|_| self.out_of_range())?)
            }
            Type::Int8 => Arc::new(self.integers(array)?),
            Type::Bool if *from == DataType::Boolean => ArrayRef::clone(array),
            Type::Bool if is_text => {
                let texts = to(&DataType::Utf8View)?;
                let read = |text: &str| truth(text).ok_or_else(|| self.no_value(text));
                let read = texts.as_string_view().iter().map(|it| it.map(read).transpose());
                Arc::new(read.collect::<Result<BooleanArray, _>>()?)
            }
            Type::Float8 if is_text => {
                let texts = to(&DataType::Utf8View)?;
                let read = texts.as_string_view().iter();
                let read = read.map(|it| it.map(|text| self.float(text)).transpose());
                Arc::new(read.collect::<Result<Float64Array, _>>()?)
            }
            // As clients see them: without the zeros that only the engine's type has.
            Type::Numeric if from.is_decimal() => self.texts(array)?,
            Type::Float8 | Type::Numeric if from.is_numeric() => match self.data_type {
                Type::Float8 => to(&DataType::Float64)?,
                _ => ArrayRef::clone(array),
            },
            Type::Numeric | Type::Json if is_text => to(&DataType::Utf8View)?,
            Type::Timestamptz if is_text => {
                let texts = to(&DataType::Utf8View)?;
                let read = texts.as_string_view().iter();
                let read = read.map(|it| it.map(|text| self.time_us(text)).transpose());
                let times = read.collect::<Result<TimestampMicrosecondArray, _>>()?;
                Arc::new(times.with_timezone("UTC"))
            }
            Type::Timestamptz
                if matches!(
                    from,
                    DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
                ) =>
            {
                to(&microseconds())?
            }
            Type::Text | Type::Unknown => match from {
                DataType::Utf8View | DataType::BinaryView => ArrayRef::clone(array),
                // Booleans are cast to `true` and `false`, unlike the output format for clients.
                _ if is_text || *from == DataType::Boolean => to(&DataType::Utf8View)?,
                DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
                    to(&DataType::BinaryView)?
                }
                _ => self.texts(array)?,
            },
            Type::Bytea if is_text => {
                let texts = to(&DataType::Utf8View)?;
                let read = |text: &str| bytea_of(text).ok_or_else(|| self.no_value(text));
                let read = texts.as_string_view().iter().map(|it| it.map(read).transpose());
                let bytes = read.collect::<Result<Vec<_>, _>>()?;
                Arc::new(BinaryViewArray::from_iter(bytes))
            }
            Type::Bytea if from.is_binary() => to(&DataType::BinaryView)?,
            _ => return Err(self.other_type(from)),
        })
    }

    /// Formats the values as text.
    fn texts(&self, array: &ArrayRef) -> Result<ArrayRef, SqlError> {
        let mut texts: Vec<Option<String>> = Vec::with_capacity(array.len());
        let put = put_texts(array, &mut |text| {
            texts.push(text.map(|it| String::from_utf8_lossy(it).into_owned()));
        });
        put.map_err(|error| self.wrong(error.to_string()))?;
        Ok(Arc::new(StringViewArray::from_iter(texts)))
    }

    /// Converts to integers. Fractions are rounded to the nearest integer.
    fn integers(&self, array: &ArrayRef) -> Result<Int64Array, SqlError> {
        let from = array.data_type();
        let out_of_range = || self.out_of_range();
        if from.is_string() || *from == DataType::Null {
            let texts =
                cast(array, &DataType::Utf8View).map_err(|it| self.wrong(it.to_string()))?;
            let texts = texts.as_string_view().iter();
            return texts.map(|it| it.map(|text| self.integer(text)).transpose()).collect();
        }
        if from.is_integer() {
            let integers = cast(array, &DataType::Int64).map_err(|_| out_of_range())?;
            return Ok(integers.as_primitive::<Int64Type>().clone());
        }
        if from.is_floating() {
            let numbers = cast(array, &DataType::Float64).map_err(|_| out_of_range())?;
            let numbers = numbers.as_primitive::<Float64Type>();
            let whole = numbers.unary::<_, Float64Type>(f64::round_ties_even);
            let whole: ArrayRef = Arc::new(whole);
            let integers = cast(&whole, &DataType::Int64).map_err(|_| out_of_range())?;
            return Ok(integers.as_primitive::<Int64Type>().clone());
        }
        if matches!(from, DataType::Decimal128(..)) {
            // The cast rounds half away from zero.
            let whole = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);
            let whole = cast(array, &whole).map_err(|_| out_of_range())?;
            let narrow = |it: i128| i64::try_from(it).map_err(|_| out_of_range());
            let numbers = whole.as_primitive::<Decimal128Type>().iter();
            return numbers.map(|it| it.map(narrow).transpose()).collect();
        }
        Err(self.other_type(from))
    }

    fn integer(&self, text: &str) -> Result<i64, SqlError> {
        let plain = text.trim_matches(|it: char| it.is_ascii_whitespace());
        let digits = plain.strip_prefix(['-', '+']).unwrap_or(plain);
        if digits.is_empty() || !digits.bytes().all(|it| it.is_ascii_digit()) {
            return Err(self.no_value(text));
        }
        let number = plain.parse().ok();
        let fits = |it: &i64| self.data_type == Type::Int8 || i32::try_from(*it).is_ok();
        number.filter(fits).ok_or_else(|| {
            let what = format!("value {text:?} is out of range for type {}", self.type_name());
            SqlError::new(SqlState::OUT_OF_RANGE, what)
        })
    }

    fn float(&self, text: &str) -> Result<f64, SqlError> {
        let plain = text.trim_matches(|it: char| it.is_ascii_whitespace());
        let number: f64 = plain.parse().map_err(|_| self.no_value(text))?;
        if number.is_infinite() && plain.bytes().any(|it| it.is_ascii_digit()) {
            let what = format!("{text:?} is out of range for type {}", self.type_name());
            return Err(SqlError::new(SqlState::OUT_OF_RANGE, what));
        }
        Ok(number)
    }

    /// Parses a time as Unix microseconds.
    fn time_us(&self, text: &str) -> Result<i64, SqlError> {
        let one: ArrayRef = Arc::new(StringViewArray::from(vec![text.trim()]));
        let time = cast(&one, &microseconds()).ok();
        let time = time.and_then(|it| {
            let times = it.as_primitive_opt::<TimestampMicrosecondType>();
            times.filter(|it| it.is_valid(0)).map(|it| it.value(0))
        });
        time.ok_or_else(|| match has_digits_of_time(text.trim()) {
            true => {
                let what = format!("date/time field value out of range: {text:?}");
                SqlError::new(SqlState::DATETIME_OVERFLOW, what)
            }
            false => {
                let type_name = self.type_name();
                let what = format!("invalid input syntax for type {type_name}: {text:?}");
                SqlError::new(SqlState::INVALID_DATETIME, what)
            }
        })
    }

    fn type_name(&self) -> &'static str {
        PgType::of_live(self.data_type).name()
    }

    fn wrong(&self, why: String) -> SqlError {
        let what = format!("invalid value for column {:?}: {why}", self.name);
        SqlError::new(SqlState::INVALID_TEXT, what)
    }

    fn no_value(&self, text: &str) -> SqlError {
        let what = format!("invalid input syntax for type {}: {text:?}", self.type_name());
        SqlError::new(SqlState::INVALID_TEXT, what)
    }

    fn out_of_range(&self) -> SqlError {
        SqlError::new(SqlState::OUT_OF_RANGE, format!("{} out of range", self.type_name()))
    }

    fn other_type(&self, from: &DataType) -> SqlError {
        let (to, from) = (self.type_name(), PgType::of_data(from).name());
        let name = self.name;
        let what = format!("column {name:?} is of type {to} but expression is of type {from}");
        SqlError::new(SqlState::DATATYPE, what)
            .with_hint("You will need to rewrite or cast the expression.")
    }
}

fn microseconds() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Casts strictly: an invalid value is an error, not NULL.
fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, to, &options)
}

fn truth(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "t" | "tr" | "tru" | "true" | "y" | "ye" | "yes" | "on" | "1" => Some(true),
        "f" | "fa" | "fal" | "fals" | "false" | "n" | "no" | "of" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Returns whether a text has the syntax of a time, even with numbers out of range: `2026-02-30
/// 25:00`.
fn has_digits_of_time(text: &str) -> bool {
    let is_number = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    let (date, clock) = text.split_once([' ', 'T']).unwrap_or((text, ""));
    let clock = clock.trim_end_matches('Z');
    let clock = clock.split_once(['+', '-']).map_or(clock, |(clock, _)| clock);
    let has_clock = clock.split([':', '.']).all(|it| is_number(it.trim()));
    date.split('-').count() == 3
        && date.split('-').all(is_number)
        && (clock.is_empty() || has_clock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Date32Array, Decimal128Array, StringArray};

    fn assigned(data_type: Type, array: ArrayRef) -> Result<ArrayRef, SqlError> {
        Assigned { name: "c", data_type }.of(&array)
    }

    fn text(text: &str) -> ArrayRef {
        Arc::new(StringArray::from(vec![Some(text), None]))
    }

    #[test]
    fn what_is_no_value_of_a_type_is_refused_with_postgresqls_codes() {
        for (data_type, value, state) in [
            (Type::Int4, text("x"), "22P02"),
            (Type::Int4, text(""), "22P02"),
            (Type::Int4, text("1.5"), "22P02"),
            (Type::Int4, text("3000000000"), "22003"),
            (Type::Int4, Arc::new(Int64Array::from(vec![3_000_000_000])), "22003"),
            (Type::Int4, Arc::new(BooleanArray::from(vec![true])), "42804"),
            (Type::Int8, text("9223372036854775808"), "22003"),
            (Type::Int8, Arc::new(Float64Array::from(vec![9.3e18])), "22003"),
            (Type::Int8, Arc::new(Float64Array::from(vec![f64::NAN])), "22003"),
            (Type::Float8, text("1e400"), "22003"),
            (Type::Float8, text("much"), "22P02"),
            (Type::Bool, text("o"), "22P02"),
            (Type::Bool, Arc::new(Int64Array::from(vec![1])), "42804"),
            (Type::Json, Arc::new(Int64Array::from(vec![1])), "42804"),
            (Type::Timestamptz, text("not a time"), "22007"),
            (Type::Timestamptz, text(""), "22007"),
            (Type::Timestamptz, text("2026-02-30"), "22008"),
            (Type::Timestamptz, text("2026-01-31 25:00:00+00"), "22008"),
            (Type::Timestamptz, Arc::new(Int64Array::from(vec![1])), "42804"),
            (Type::Bytea, text("\\xz0"), "22P02"),
            (Type::Bytea, Arc::new(Int64Array::from(vec![1])), "42804"),
        ] {
            let error = assigned(data_type, Arc::clone(&value)).expect_err("no such value");
            assert_eq!(error.state.0, state, "{data_type:?} of {value:?}: {error}");
        }
    }

    #[test]
    fn values_of_other_types_become_those_of_the_column() {
        let decimals = Decimal128Array::from(vec![25, -25, 14]).with_precision_and_scale(5, 1);
        let decimals = decimals.expect("they fit");
        let halves = Float64Array::from(vec![2.5, -2.5, 3.5]);
        let integers = |of: [i32; 3]| Arc::new(Int32Array::from(of.to_vec())) as ArrayRef;
        let texts = |of: &[&str]| Arc::new(StringViewArray::from(of.to_vec())) as ArrayRef;
        for (data_type, value, expected) in [
            (Type::Int4, Arc::new(decimals) as ArrayRef, integers([3, -3, 1])),
            (Type::Int4, Arc::new(halves), integers([2, -2, 4])),
            (Type::Int4, texts(&[" 1", "-2 ", "+3"]), integers([1, -2, 3])),
            (Type::Text, integers([1, -2, 3]), texts(&["1", "-2", "3"])),
            (
                Type::Text,
                Arc::new(BooleanArray::from(vec![true, false])),
                texts(&["true", "false"]),
            ),
            (Type::Text, Arc::new(Date32Array::from(vec![0])), texts(&["1970-01-01"])),
        ] {
            assert_eq!(&assigned(data_type, value).expect("they fit"), &expected);
        }
    }
}
