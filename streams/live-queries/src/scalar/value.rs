//! SQL values.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use rust_decimal::Decimal;

/// A value, borrowed from a record or query.
///
/// `Display` writes PostgreSQL's text format. NULL has none and writes nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    /// `integer` or `bigint`.
    Int(i64),
    /// `numeric` with at most 28 significant digits.
    Numeric(Decimal),
    Float(f64),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    /// Unix microseconds, UTC.
    Time(i64),
    /// Microseconds; a day has 24 hours.
    Interval(i64),
    /// JSON text as written in the record.
    Json(Cow<'a, str>),
}

impl<'a> Value<'a> {
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Returns the same value, borrowed from this one.
    pub fn borrowed(&self) -> Value<'_> {
        match self {
            Self::Text(text) => Value::Text(Cow::Borrowed(text)),
            Self::Bytes(bytes) => Value::Bytes(Cow::Borrowed(bytes)),
            Self::Json(text) => Value::Json(Cow::Borrowed(text)),
            Self::Null => Value::Null,
            Self::Bool(it) => Value::Bool(*it),
            Self::Int(it) => Value::Int(*it),
            Self::Numeric(it) => Value::Numeric(*it),
            Self::Float(it) => Value::Float(*it),
            Self::Time(it) => Value::Time(*it),
            Self::Interval(it) => Value::Interval(*it),
        }
    }

    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Self::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
            Self::Json(text) => Value::Json(Cow::Owned(text.into_owned())),
            Self::Null => Value::Null,
            Self::Bool(it) => Value::Bool(it),
            Self::Int(it) => Value::Int(it),
            Self::Numeric(it) => Value::Numeric(it),
            Self::Float(it) => Value::Float(it),
            Self::Time(it) => Value::Time(it),
            Self::Interval(it) => Value::Interval(it),
        }
    }

    /// Returns the approximate memory usage.
    pub fn bytes(&self) -> usize {
        let heap = match self {
            Self::Text(text) | Self::Json(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        size_of::<Self>() + heap
    }

    /// Compares two values of one type in PostgreSQL's order. NaN is greater than all numbers and
    /// equals itself. Text is ordered by bytes (collation "C"). NULL is last, as in ORDER BY.
    pub fn order(&self, other: &Value<'_>) -> Ordering {
        match (self, other) {
            (Self::Bool(left), Value::Bool(right)) => left.cmp(right),
            (Self::Int(left), Value::Int(right)) => left.cmp(right),
            (Self::Numeric(left), Value::Numeric(right)) => left.cmp(right),
            (Self::Float(left), Value::Float(right)) => order_floats(*left, *right),
            (Self::Text(left), Value::Text(right)) => left.as_bytes().cmp(right.as_bytes()),
            (Self::Bytes(left), Value::Bytes(right)) => left.cmp(right),
            (Self::Time(left), Value::Time(right)) => left.cmp(right),
            (Self::Interval(left), Value::Interval(right)) => left.cmp(right),
            (Self::Json(left), Value::Json(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    /// Hashes a value. Equal values of one type have equal hashes.
    pub(crate) fn hash_into(&self, hasher: &mut impl Hasher) {
        match self {
            Self::Null => {}
            Self::Bool(it) => it.hash(hasher),
            Self::Int(it) | Self::Time(it) | Self::Interval(it) => it.hash(hasher),
            Self::Numeric(it) => it.normalize().hash(hasher),
            Self::Float(it) if it.is_nan() => f64::NAN.to_bits().hash(hasher),
            // Adding zero converts negative zero to zero, which it equals.
            Self::Float(it) => (it + 0.0).to_bits().hash(hasher),
            Self::Text(it) | Self::Json(it) => it.hash(hasher),
            Self::Bytes(it) => it.hash(hasher),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Int(_) => 1,
            Self::Numeric(_) => 2,
            Self::Float(_) => 3,
            Self::Text(_) => 4,
            Self::Bytes(_) => 5,
            Self::Time(_) => 6,
            Self::Interval(_) => 7,
            Self::Json(_) => 8,
            Self::Null => 9,
        }
    }
}

fn order_floats(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
}
