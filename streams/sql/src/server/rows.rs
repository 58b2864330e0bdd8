//! Result rows of a statement, fetched as the client requests them.

use std::ops::Range;
use std::sync::Arc;

use bytes::BytesMut;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use live_queries::{Layout, OutputColumn, OutputRow, OutputRows, Type, Value};

use crate::error::SqlError;
use crate::panics::contain_future;
use crate::wire::{
    Answers, CopyOut, Formats, put_copy_row, put_copy_rows, put_live_row, put_live_value, put_rows,
};

/// Maximum rows of an engine's batch that are written at once, and about their maximum size.
const SLICE_ROWS: usize = 512;
const SLICE_BYTES: usize = 1 << 20;

pub(super) enum Rows {
    Engine(EngineRows),
    Live(LiveRows),
}

/// Rows of a finite query.
pub(super) struct EngineRows {
    stream: SendableRecordBatchStream,
    batch: Option<RecordBatch>,
    /// Index of the first row of the batch that was not returned yet.
    at: usize,
    /// True if the stream has no more batches.
    is_whole: bool,
}

/// Rows of a live query.
pub(super) struct LiveRows {
    schema: SchemaRef,
    shape: Arc<LiveShape>,
    stream: BoxStream<'static, Result<OutputRows, SqlError>>,
    /// Received rows that were not returned yet.
    ready: OutputRows,
}

/// Columns and types of a live query's rows.
pub(super) struct LiveShape {
    layout: Layout,
    types: Vec<Type>,
}

/// Some rows to be sent.
pub(super) enum Chunk {
    Engine(RecordBatch, Range<usize>),
    Live(Arc<LiveShape>, OutputRows),
}

impl Rows {
    pub(super) fn new(stream: SendableRecordBatchStream) -> Self {
        Self::Engine(EngineRows { stream, batch: None, at: 0, is_whole: false })
    }

    pub(super) fn live(
        schema: SchemaRef,
        columns: &[OutputColumn],
        rows: crate::host::LiveRows,
    ) -> Self {
        let types = columns.iter().map(|it| it.data_type).collect();
        let shape = Arc::new(LiveShape { layout: rows.layout, types });
        Self::Live(LiveRows { schema, shape, stream: rows.rows, ready: OutputRows::default() })
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }

    /// Creates rows from a single batch, without a stream.
    pub(super) fn of_batch(batch: RecordBatch) -> Self {
        let stream = RecordBatchStreamAdapter::new(batch.schema(), stream::empty());
        let (stream, batch) = (Box::pin(stream), Some(batch));
        Self::Engine(EngineRows { stream, batch, at: 0, is_whole: true })
    }

    pub(super) fn schema(&self) -> SchemaRef {
        match self {
            Self::Engine(rows) => rows.stream.schema(),
            Self::Live(rows) => SchemaRef::clone(&rows.schema),
        }
    }

    /// Returns whether all rows produced so far were returned.
    pub(super) fn is_waited_for(&self) -> bool {
        match self {
            Self::Engine(EngineRows { batch, at, is_whole, .. }) => {
                !is_whole && batch.as_ref().is_none_or(|batch| *at == batch.num_rows())
            }
            Self::Live(rows) => rows.ready.is_empty(),
        }
    }

    /// Returns the next rows, at most `rows_max`, or `None` at the end. Cancel-safe: no row is
    /// lost.
    pub(super) async fn next(&mut self, rows_max: usize) -> Result<Option<Chunk>, SqlError> {
        match self {
            Self::Engine(rows) => rows.next(rows_max).await,
            Self::Live(rows) => rows.next(rows_max).await,
        }
    }
}

impl EngineRows {
    async fn next(&mut self, rows_max: usize) -> Result<Option<Chunk>, SqlError> {
        loop {
            if let Some(batch) = &self.batch {
                let row_bytes = batch.get_array_memory_size() / batch.num_rows().max(1);
                let count = (SLICE_BYTES / row_bytes.max(1)).clamp(1, SLICE_ROWS);
                let end = batch.num_rows().min(self.at.saturating_add(rows_max.min(count)));
                if self.at < end {
                    let range = self.at..end;
                    self.at = end;
                    return Ok(Some(Chunk::Engine(batch.clone(), range)));
                }
            }
            let next = async { self.stream.next().await.transpose().map_err(SqlError::from) };
            match contain_future(next).await? {
                None => return Ok(None),
                Some(batch) => (self.batch, self.at) = (Some(batch), 0),
            }
        }
    }
}

impl LiveRows {
    async fn next(&mut self, rows_max: usize) -> Result<Option<Chunk>, SqlError> {
        while self.ready.is_empty() {
            match self.stream.next().await {
                None => return Ok(None),
                Some(rows) => self.ready = rows?,
            }
        }
        Ok(Some(Chunk::Live(Arc::clone(&self.shape), self.ready.take(rows_max))))
    }
}

impl LiveShape {
    /// Calls `show` with the values of each row.
    fn each(&self, rows: &OutputRows, mut show: impl FnMut(&[Value<'_>])) {
        let (mut reader, mut row, mut values) = (rows.reader(), OutputRow::default(), Vec::new());
        while reader.read(&mut row) {
            self.layout.values(&mut row, &mut values);
            show(&values);
        }
    }
}

impl Chunk {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Engine(_, range) => range.len(),
            Self::Live(_, rows) => rows.len(),
        }
    }

    /// Appends a DataRow message for each row.
    pub(super) fn put(&self, out: &mut BytesMut, formats: &Formats) -> Result<(), ArrowError> {
        match self {
            Self::Engine(batch, range) => put_rows(out, batch, range.clone(), formats),
            Self::Live(shape, rows) => {
                shape.each(rows, |row| put_live_row(out, row, &shape.types, formats));
                Ok(())
            }
        }
    }

    /// Appends the COPY data of each row.
    pub(super) fn put_copy(
        &self,
        answers: &mut Answers,
        copy: &mut CopyOut,
    ) -> Result<(), ArrowError> {
        let (shape, rows) = match self {
            Self::Engine(batch, range) => {
                return put_copy_rows(answers, batch, range.clone(), copy);
            }
            Self::Live(shape, rows) => (shape, rows),
        };
        let format = copy.value_format();
        shape.each(rows, |row| {
            put_copy_row(answers, row.len(), copy, &|column, out| {
                let value = &row[column];
                if !value.is_null() {
                    put_live_value(out, value, shape.types[column], format);
                }
                !value.is_null()
            });
        });
        Ok(())
    }
}
