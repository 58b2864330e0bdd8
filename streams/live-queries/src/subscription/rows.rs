//! Output rows, encoded consecutively in one buffer.
//!
//! A row of a record is encoded while the query evaluates it, and decoded while it is sent to the
//! client. Neither allocates memory for each row.

use std::borrow::Cow;
use std::convert::Infallible;

use rust_decimal::Decimal;

use crate::error::RowError;
use crate::scalar::Value;

const WHOLE: &str = "rows are written whole, and read as they were written";

/// Type of an output row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// Insertion (1) or deletion (-1) of this row.
    Diff(i8),
    /// This row replaces the one with its key.
    Upsert,
    /// The row with this key was deleted. Other columns are NULL.
    Delete,
    /// All changes before this time and position have been sent. Columns are NULL.
    #[default]
    Progress,
}

/// A row whose values are borrowed from [`OutputRows`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputRow<'a> {
    pub event: Event,
    /// Time of the change in Unix milliseconds; never decreases.
    pub time_ms: i64,
    /// Partition and offset of the record that caused the row; in a progress row, the next offset
    /// of each partition. Empty if time caused it.
    pub positions: Vec<(i32, i64)>,
    /// Columns of the query, in the client's order.
    pub columns: Vec<Value<'a>>,
}

/// A row without its columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a> {
    pub(super) event: Event,
    pub(super) time_ms: i64,
    pub(super) positions: &'a [(i32, i64)],
}

/// Encoded rows of a subscription, in order.
#[derive(Clone, Debug, Default)]
pub struct OutputRows {
    /// For each row: number of following bytes (4 bytes), event, time, number of positions and
    /// positions, number of columns and columns.
    bytes: Vec<u8>,
    /// Start of the first row.
    start: usize,
    count: usize,
}

/// Decodes rows sequentially.
#[derive(Clone, Copy, Debug)]
pub struct RowReader<'a> {
    rest: &'a [u8],
}

/// Type tags of encoded values.
mod tag {
    pub(super) const NULL: u8 = 0;
    pub(super) const FALSE: u8 = 1;
    pub(super) const TRUE: u8 = 2;
    pub(super) const INT: u8 = 3;
    pub(super) const NUMERIC: u8 = 4;
    pub(super) const FLOAT: u8 = 5;
    pub(super) const TEXT: u8 = 6;
    pub(super) const BYTES: u8 = 7;
    pub(super) const TIME: u8 = 8;
    pub(super) const INTERVAL: u8 = 9;
    pub(super) const JSON: u8 = 10;
}

impl Event {
    const fn to_byte(self) -> u8 {
        match self {
            Self::Diff(diff) => diff.cast_unsigned(),
            Self::Upsert => 2,
            Self::Delete => 3,
            Self::Progress => 4,
        }
    }

    const fn of_byte(byte: u8) -> Self {
        match byte {
            2 => Self::Upsert,
            3 => Self::Delete,
            4 => Self::Progress,
            diff => Self::Diff(diff.cast_signed()),
        }
    }
}

impl OutputRows {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the bytes of all rows.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub fn reader(&self) -> RowReader<'_> {
        RowReader { rest: &self.bytes[self.start..] }
    }

    /// Takes the first `count` rows, or all if there are fewer.
    pub fn take(&mut self, count: usize) -> Self {
        if count >= self.count {
            return std::mem::take(self);
        }
        let mut reader = self.reader();
        for _ in 0..count {
            let bytes = reader.u32() as usize;
            reader.bytes(bytes);
        }
        let end = self.bytes.len() - reader.rest.len();
        let bytes = self.bytes[self.start..end].to_vec();
        self.start = end;
        self.count -= count;
        Self { bytes, start: 0, count }
    }

    /// Reserves memory for `bytes` unless there is some.
    pub(super) fn expect(&mut self, bytes: usize) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(bytes);
        }
    }

    /// Appends a row.
    pub(super) fn push<'v>(
        &mut self,
        head: Head<'_>,
        columns: impl ExactSizeIterator<Item = &'v Value<'v>>,
    ) {
        let Ok(()) = self.add::<_, Infallible>(head, columns, |column, bytes| {
            put_value(column, bytes);
            Ok(())
        });
    }

    /// Appends a row whose columns are evaluated sequentially. If one fails, nothing is appended.
    pub(super) fn try_push<'v>(
        &mut self,
        head: Head<'_>,
        columns: impl ExactSizeIterator<Item = Result<Value<'v>, RowError>>,
    ) -> Result<(), RowError> {
        self.add(head, columns, |column, bytes| {
            put_value(&column?, bytes);
            Ok(())
        })
    }

    fn add<T, E>(
        &mut self,
        Head { event, time_ms, positions }: Head<'_>,
        columns: impl ExactSizeIterator<Item = T>,
        mut put: impl FnMut(T, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let begin = self.bytes.len();
        let bytes = &mut self.bytes;
        // Placeholder for the length.
        bytes.extend([0; 4]);
        bytes.push(event.to_byte());
        bytes.extend(time_ms.to_le_bytes());
        put_length(positions.len(), bytes);
        for (partition, offset) in positions {
            bytes.extend(partition.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
        }
        put_length(columns.len(), bytes);
        for column in columns {
            if let Err(error) = put(column, bytes) {
                bytes.truncate(begin);
                return Err(error);
            }
        }
        let length = u32::try_from(bytes.len() - begin - 4).expect(WHOLE);
        bytes[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
        self.count += 1;
        Ok(())
    }
}

impl<'a> RowReader<'a> {
    /// Reads the next row into `row`, whose memory is reused. Returns `false` at the end.
    pub fn read(&mut self, row: &mut OutputRow<'a>) -> bool {
        if self.rest.is_empty() {
            return false;
        }
        let _length = self.u32();
        row.event = Event::of_byte(self.byte());
        row.time_ms = i64::from_le_bytes(self.array());
        row.positions.clear();
        for _ in 0..self.u32() {
            let partition = i32::from_le_bytes(self.array());
            row.positions.push((partition, i64::from_le_bytes(self.array())));
        }
        row.columns.clear();
        for _ in 0..self.u32() {
            row.columns.push(self.value());
        }
        true
    }

    fn value(&mut self) -> Value<'a> {
        match self.byte() {
            tag::NULL => Value::Null,
            tag::FALSE => Value::Bool(false),
            tag::TRUE => Value::Bool(true),
            tag::INT => Value::Int(i64::from_le_bytes(self.array())),
            tag::NUMERIC => Value::Numeric(Decimal::deserialize(self.array())),
            tag::FLOAT => Value::Float(f64::from_le_bytes(self.array())),
            tag::TEXT => Value::Text(Cow::Borrowed(self.text())),
            tag::BYTES => Value::Bytes(Cow::Borrowed(self.run())),
            tag::TIME => Value::Time(i64::from_le_bytes(self.array())),
            tag::INTERVAL => Value::Interval(i64::from_le_bytes(self.array())),
            tag::JSON => Value::Json(Cow::Borrowed(self.text())),
            other => unreachable!("{other} is no tag of a value"),
        }
    }

    fn text(&mut self) -> &'a str {
        std::str::from_utf8(self.run()).expect(WHOLE)
    }

    /// Reads bytes with a length prefix.
    fn run(&mut self) -> &'a [u8] {
        let length = self.u32() as usize;
        self.bytes(length)
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at_checked(length).expect(WHOLE);
        self.rest = rest;
        bytes
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (bytes, rest) = self.rest.split_first_chunk().expect(WHOLE);
        self.rest = rest;
        *bytes
    }
}

fn put_value(value: &Value<'_>, bytes: &mut Vec<u8>) {
    let mut put = |tag, value: &[u8]| {
        bytes.push(tag);
        bytes.extend(value);
    };
    match value {
        Value::Null => put(tag::NULL, &[]),
        Value::Bool(false) => put(tag::FALSE, &[]),
        Value::Bool(true) => put(tag::TRUE, &[]),
        Value::Int(it) => put(tag::INT, &it.to_le_bytes()),
        Value::Numeric(it) => put(tag::NUMERIC, &it.serialize()),
        Value::Float(it) => put(tag::FLOAT, &it.to_le_bytes()),
        Value::Time(it) => put(tag::TIME, &it.to_le_bytes()),
        Value::Interval(it) => put(tag::INTERVAL, &it.to_le_bytes()),
        Value::Text(text) => put_run(tag::TEXT, text.as_bytes(), bytes),
        Value::Json(text) => put_run(tag::JSON, text.as_bytes(), bytes),
        Value::Bytes(run) => put_run(tag::BYTES, run, bytes),
    }
}

fn put_run(tag: u8, run: &[u8], bytes: &mut Vec<u8>) {
    bytes.push(tag);
    put_length(run.len(), bytes);
    bytes.extend(run);
}

fn put_length(length: usize, bytes: &mut Vec<u8>) {
    bytes.extend(u32::try_from(length).expect("records are smaller than 4 GiB").to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(time_ms: i64, positions: &[(i32, i64)]) -> Head<'_> {
        Head { event: Event::Diff(-1), time_ms, positions }
    }

    fn values() -> Vec<Value<'static>> {
        let texts = ["", "a", "ä\0\n"].map(Cow::Borrowed);
        let mut values: Vec<Value<'static>> = texts
            .iter()
            .flat_map(|it| [Value::Text(it.clone()), Value::Json(it.clone())])
            .collect();
        values.extend([Value::Null, Value::Bool(true), Value::Bool(false)]);
        values.extend([i64::MIN, -1, 0, i64::MAX].map(Value::Int));
        values.extend([Decimal::MAX, Decimal::new(-150, 2)].map(Value::Numeric));
        values.extend([-0.0, f64::INFINITY, 1.5].map(Value::Float));
        values.extend([
            Value::Bytes(Cow::Owned(vec![0, 255])),
            Value::Time(-1),
            Value::Interval(9),
        ]);
        values
    }

    /// Time, positions and columns of a row.
    type Shown = (i64, Vec<(i32, i64)>, Vec<String>);

    fn all(rows: &OutputRows) -> Vec<Shown> {
        let (mut reader, mut row, mut all) = (rows.reader(), OutputRow::default(), Vec::new());
        while reader.read(&mut row) {
            assert_eq!(row.event, Event::Diff(-1));
            let columns = row.columns.iter().map(|it| format!("{it:?}")).collect();
            all.push((row.time_ms, row.positions.clone(), columns));
        }
        all
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let (values, mut rows) = (values(), OutputRows::default());
        rows.push(head(i64::MIN, &[(0, 7), (-1, i64::MAX)]), values.iter());
        rows.push(head(5, &[]), [].iter());
        let texts = values.iter().map(|it| format!("{it:?}")).collect();
        let first = (i64::MIN, vec![(0, 7), (-1, i64::MAX)], texts);
        assert_eq!(all(&rows), [first, (5, vec![], vec![])]);
    }

    #[test]
    fn a_row_that_fails_leaves_nothing() {
        let mut rows = OutputRows::default();
        rows.push(head(1, &[]), [Value::Int(1)].iter());
        let (kept, before) = (rows.bytes(), all(&rows));
        let columns = [Ok(Value::Text("gone".into())), Err(RowError::NotText)];
        assert_eq!(rows.try_push(head(2, &[(0, 1)]), columns.into_iter()), Err(RowError::NotText));
        assert_eq!((rows.len(), rows.bytes(), all(&rows)), (1, kept, before));
    }

    #[test]
    fn the_first_rows_are_taken_in_order() {
        let mut rows = OutputRows::default();
        (0..10).for_each(|time_ms| rows.push(head(time_ms, &[]), values().iter()));
        let bytes = rows.bytes();
        let mut taken = Vec::new();
        for count in [0, 1, 3, 5, 7, 1] {
            let some = rows.take(count);
            taken.push(some.len());
            let times: Vec<i64> = all(&some).iter().map(|it| it.0).collect();
            let from: i64 = taken[..taken.len() - 1].iter().sum::<usize>() as i64;
            assert_eq!(times, (from..from + some.len() as i64).collect::<Vec<_>>());
            assert_eq!(rows.len(), 10 - taken.iter().sum::<usize>());
            assert_eq!(rows.bytes(), bytes / 10 * rows.len());
        }
        assert_eq!(taken, [0, 1, 3, 5, 1, 0]);
    }
}
