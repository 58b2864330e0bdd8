//! Reads records of a topic into columns. Blocks on the device, so it must not run on threads that
//! serve others.
//!
//! Values are not copied: text columns refer to the buffers of the batches read. With a selective
//! filter values are copied, so that a few bytes do not keep a whole buffer alive.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BinaryViewBuilder, Int32Array, Int64Array, RecordBatch, RecordBatchOptions,
    StringViewBuilder, TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::SchemaRef;
use live_queries::TableKind;
use record_batch::{BatchHeader, Codec, Record, Records};
use record_log::{LogErrorKind, Partition, RECORDS_BYTES_MAX, is_committed};

use super::columns::{BYTES_SUFFIX, CURRENT_SUFFIX, Form, LogColumn, ReadColumn};
use super::json::headers_text;
use super::json_fields::{FieldColumns, JsonFields};
use super::past::Past;
use super::pins::PinnedTopic;
use super::pushdown::LogFilter;
use crate::error::{SqlError, SqlState};
use crate::typed::OnError;

/// Bytes per read, and maximum bytes that the columns of a batch hold.
const CHUNK_BYTES: usize = 1 << 20;
const BATCH_BYTES: usize = 4 << 20;

/// Maximum number of rows of a batch.
pub(super) const BATCH_ROWS: usize = 8_192;

/// Plan for reading a topic.
#[derive(Debug)]
pub(crate) struct ReadPlan {
    pub(crate) topic: Arc<str>,
    pub(crate) columns: Vec<ReadColumn>,
    /// JSON fields to extract from values.
    pub(crate) fields: JsonFields,
    pub(crate) form: Form,
    /// Handling of a value that is not UTF-8 where text is required.
    pub(crate) on_error: OnError,
    pub(crate) kind: TableKind,
    /// Point in time for current values. `None` is now.
    pub(crate) past: Option<Past>,
    /// Positions up to which the statement reads; `None` for a point in the past.
    pub(super) pinned: Option<Arc<PinnedTopic>>,
    pub(crate) filter: LogFilter,
    /// Schema of `columns`.
    pub(crate) schema: SchemaRef,
    pub(crate) limit: Option<usize>,
}

impl ReadPlan {
    /// Returns whether values that are not UTF-8 are returned or are errors, and not skipped.
    fn reads_all(&self) -> bool {
        self.form == Form::Bytes || self.on_error == OnError::Fail
    }
}

/// A range of offsets in one partition.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) partition: Arc<Partition>,
    pub(crate) next: i64,
    pub(crate) end: i64,
}

/// Reader of several spans, one after the other.
#[derive(Debug)]
pub(crate) struct LogReader {
    plan: Arc<ReadPlan>,
    /// Remaining spans. The last one is being read.
    spans: Vec<Span>,
    rows_left: usize,
    /// Read buffer for reuse if no column refers to the previous one.
    spare: Vec<u8>,
}

impl LogReader {
    pub(crate) fn new(plan: Arc<ReadPlan>, mut spans: Vec<Span>) -> Self {
        spans.reverse();
        let rows_left = plan.limit.unwrap_or(usize::MAX);
        Self { plan, spans, rows_left, spare: Vec::new() }
    }

    /// Returns the next rows, or `None` at the end.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>, SqlError> {
        let mut rows = Rows::new(Arc::clone(&self.plan), self.rows_left.min(BATCH_ROWS));
        while rows.has_room() {
            let Some(span) = self.spans.last_mut() else { break };
            if !rows.read(span, &mut self.spare)? {
                self.spans.pop();
            }
        }
        if rows.count == 0 {
            return Ok(None);
        }
        self.rows_left -= rows.count;
        rows.finish().map(Some)
    }
}

/// Builder of a batch.
pub(super) struct Rows {
    plan: Arc<ReadPlan>,
    pub(super) count: usize,
    count_max: usize,
    /// Bytes that the columns hold.
    bytes: usize,
    partitions: Vec<i32>,
    offsets: Vec<i64>,
    times: Vec<Option<i64>>,
    keys: Texts,
    values: Texts,
    headers: StringViewBuilder,
    fields: FieldColumns,
}

impl Rows {
    pub(super) fn new(plan: Arc<ReadPlan>, count_max: usize) -> Self {
        let (keys, values) = (Texts::new(plan.form), Texts::new(plan.form));
        let fields = FieldColumns::new(&plan.fields);
        Self {
            plan,
            count: 0,
            count_max,
            bytes: 0,
            partitions: Vec::new(),
            offsets: Vec::new(),
            times: Vec::new(),
            keys,
            values,
            headers: StringViewBuilder::new(),
            fields,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.count < self.count_max && self.bytes < BATCH_BYTES
    }

    /// Continues reading a span. Returns `false` at its end.
    fn read(&mut self, span: &mut Span, spare: &mut Vec<u8>) -> Result<bool, SqlError> {
        if span.next >= span.end {
            return Ok(false);
        }
        let mut buffer = std::mem::take(spare);
        let range = match span.partition.read(span.next, CHUNK_BYTES, &mut buffer) {
            Ok(range) => range,
            // Retention has deleted the records at this offset.
            Err(error) if error.kind == LogErrorKind::OffsetOutOfRange => {
                let start = span.partition.start_offset();
                if start <= span.next {
                    return Err(error.into());
                }
                span.next = start;
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        };
        if range.is_empty() {
            return Ok(false);
        }
        let chunk = Buffer::from_vec(buffer);
        let aborted = span.partition.aborted(span.next..span.end);
        let mut at = range.start;
        while at < range.end && self.has_room() && span.next < span.end {
            let Some(header) = BatchHeader::read(&chunk[at..range.end]) else {
                return Err(damaged(&self.plan.topic, span, "no batch is there"));
            };
            let batch = &chunk[at..range.end];
            if !is_committed(&header, &aborted) || !self.can_match(&header, batch) {
                span.next = header.next_offset();
            } else {
                self.add_batch(&header, (&chunk, at), span)?;
            }
            at += header.size_bytes;
        }
        *spare = chunk.into_vec().unwrap_or_default();
        Ok(true)
    }

    /// Returns whether the batch at the start of `bytes` can contain a matching record.
    fn can_match(&self, header: &BatchHeader, bytes: &[u8]) -> bool {
        let newest_us = header.max_timestamp.saturating_mul(1_000);
        let filter = &self.plan.filter;
        let is_new = newest_us >= filter.times_us.ends().0;
        let is_plain = Codec::of(header.attributes) == Some(Codec::None);
        let bytes = bytes.get(..header.size_bytes).filter(|_| is_plain);
        is_new && bytes.is_none_or(|it| filter.contained.iter().all(|each| each.may_be_in(it)))
    }

    fn add_batch(
        &mut self,
        header: &BatchHeader,
        (chunk, at): (&Buffer, usize),
        span: &mut Span,
    ) -> Result<(), SqlError> {
        let plan = Arc::clone(&self.plan);
        let records = Records::decode(header, &chunk[at..], RECORDS_BYTES_MAX)
            .map_err(|error| damaged(&plan.topic, span, &error.to_string()))?;
        let number = i32::try_from(span.partition.number()).expect("partitions have a limit");
        for record in records.iter() {
            let record = record.map_err(|error| damaged(&plan.topic, span, &error.to_string()))?;
            if record.offset < span.next {
                continue;
            }
            if record.offset >= span.end || self.count == self.count_max {
                // The next batch of rows starts here.
                span.next = record.offset;
                return Ok(());
            }
            if matches(&plan.filter, &record) {
                self.add(number, &record, (!plan.filter.is_sparse()).then_some(chunk))?;
            }
        }
        span.next = header.next_offset();
        Ok(())
    }

    /// Adds a record. Its values refer to `chunk` if it is given and contains them.
    pub(super) fn add(
        &mut self,
        partition: i32,
        record: &Record<'_>,
        chunk: Option<&Buffer>,
    ) -> Result<(), SqlError> {
        let plan = Arc::clone(&self.plan);
        let not_text = |what: &str| {
            let (topic, offset) = (&plan.topic, record.offset);
            let message = format!(
                "the {what} at offset {offset} of partition {partition} of {topic:?} is not UTF-8"
            );
            let kind = if plan.kind == TableKind::Values { CURRENT_SUFFIX } else { "" };
            let table = format!("{topic}{kind}{BYTES_SUFFIX}");
            let hint = format!("Use table {table:?}, whose keys and values are bytea.");
            SqlError::new(SqlState::INVALID_ENCODING, message).with_hint(hint)
        };
        let is_shown = |it: &&[u8]| plan.reads_all() || std::str::from_utf8(it).is_ok();
        let value = record.value.filter(is_shown);
        for column in &plan.columns {
            let ReadColumn::Record(column) = column else { continue };
            match column {
                LogColumn::Partition => self.partitions.push(partition),
                LogColumn::Offset => self.offsets.push(record.offset),
                LogColumn::Time => self.times.push(time_us(record)),
                LogColumn::Key => {
                    let kept = self.keys.add(record.key, chunk);
                    self.bytes += kept.ok_or_else(|| not_text("key"))?;
                }
                LogColumn::Value => {
                    let kept = self.values.add(value, chunk);
                    self.bytes += kept.ok_or_else(|| not_text("value"))?;
                }
                LogColumn::Headers if record.headers.is_empty() => self.headers.append_null(),
                LogColumn::Headers => {
                    let text = headers_text(&record.headers);
                    self.bytes += text.len();
                    self.headers.append_value(text);
                }
            }
        }
        if !plan.fields.all().is_empty() {
            let kept = self.fields.add(&plan.fields, value);
            self.bytes += kept.ok_or_else(|| not_text("value"))?;
        }
        self.count += 1;
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<RecordBatch, SqlError> {
        let plan = Arc::clone(&self.plan);
        let columns = plan.columns.iter().map(|column| -> ArrayRef {
            let column = match column {
                ReadColumn::Record(column) => column,
                ReadColumn::Json(field) => return self.fields.finish(*field),
            };
            match column {
                LogColumn::Partition => {
                    Arc::new(Int32Array::from(std::mem::take(&mut self.partitions)))
                }
                LogColumn::Offset => Arc::new(Int64Array::from(std::mem::take(&mut self.offsets))),
                LogColumn::Time => {
                    let times = std::mem::take(&mut self.times);
                    Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC"))
                }
                LogColumn::Key => self.keys.finish(),
                LogColumn::Value => self.values.finish(),
                LogColumn::Headers => Arc::new(self.headers.finish()),
            }
        });
        let options = RecordBatchOptions::new().with_row_count(Some(self.count));
        let columns = columns.collect();
        RecordBatch::try_new_with_options(Arc::clone(&plan.schema), columns, &options)
            .map_err(|error| SqlError::new(SqlState::INTERNAL, error.to_string()))
    }
}

/// A buffer that columns refer to: its index in the column, and its address.
#[derive(Clone, Copy)]
struct Block {
    index: u32,
    address: usize,
}

/// A column of text or bytea.
enum Texts {
    Text(StringViewBuilder, Option<Block>),
    Bytes(BinaryViewBuilder, Option<Block>),
}

impl Texts {
    fn new(form: Form) -> Self {
        match form {
            Form::Text => Self::Text(StringViewBuilder::new(), None),
            Form::Bytes => Self::Bytes(BinaryViewBuilder::new(), None),
        }
    }

    /// Appends a value by reference to `chunk` if it lies there. Returns the bytes that the column
    /// holds for it, or `None` if text is required and the value is not UTF-8.
    fn add(&mut self, value: Option<&[u8]>, chunk: Option<&Buffer>) -> Option<usize> {
        let Some(value) = value else {
            match self {
                Self::Text(builder, _) => builder.append_null(),
                Self::Bytes(builder, _) => builder.append_null(),
            }
            return Some(0);
        };
        let place = chunk.and_then(|chunk| Some((chunk, place_in(chunk, value)?)));
        let length = u32::try_from(value.len()).ok()?;
        // Both builders have the same methods.
        macro_rules! append {
            ($builder:ident, $block:ident, $value:expr) => {
                match place {
                    Some((chunk, at)) => {
                        let address = chunk.as_ptr().addr();
                        let known = $block.filter(|block| block.address == address);
                        let index = match known {
                            Some(block) => block.index,
                            None => $builder.append_block(chunk.clone()),
                        };
                        *$block = Some(Block { index, address });
                        $builder.try_append_view(index, at, length).ok()?;
                        Some(if known.is_some() { 0 } else { chunk.len() })
                    }
                    None => {
                        $builder.append_value($value);
                        // The builder may have started a block of its own.
                        *$block = None;
                        Some(value.len())
                    }
                }
            };
        }
        match self {
            Self::Text(builder, block) => append!(builder, block, std::str::from_utf8(value).ok()?),
            Self::Bytes(builder, block) => append!(builder, block, value),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Text(builder, _) => Arc::new(builder.finish()),
            Self::Bytes(builder, _) => Arc::new(builder.finish()),
        }
    }
}

/// Returns the position in a buffer of a value read from it, or `None` for a decompressed value.
fn place_in(chunk: &Buffer, value: &[u8]) -> Option<u32> {
    let at = value.as_ptr().addr().checked_sub(chunk.as_ptr().addr())?;
    let is_inside = at.checked_add(value.len())? <= chunk.len();
    u32::try_from(at).ok().filter(|_| is_inside)
}

fn time_us(record: &Record<'_>) -> Option<i64> {
    // Producers write -1 for an unknown time.
    (record.timestamp_ms >= 0).then(|| record.timestamp_ms.saturating_mul(1_000))
}

/// Returns whether a record matches the filter.
pub(super) fn matches(filter: &LogFilter, record: &Record<'_>) -> bool {
    let fits_key = || {
        let keys = filter.keys.as_ref();
        keys.is_none_or(|keys| record.key.is_some_and(|key| keys.contains(key)))
    };
    let fits_time = || {
        filter.times_us.is_all()
            || time_us(record).is_some_and(|time| filter.times_us.contains(time))
    };
    let fits_value = || {
        let mut contained = filter.contained.iter();
        contained.all(|it| record.value.is_some_and(|value| it.may_be_in(value)))
    };
    filter.offsets.contains(record.offset) && fits_time() && fits_key() && fits_value()
}

fn damaged(topic: &str, span: &Span, why: &str) -> SqlError {
    let (offset, number) = (span.next, span.partition.number());
    let what = format!("cannot read offset {offset} of partition {number} of {topic:?}: {why}");
    SqlError::new(SqlState::IO, what)
}
