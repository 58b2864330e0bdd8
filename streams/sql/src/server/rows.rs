//! Rows that a statement gives, taken as a client asks for them.

use std::ops::Range;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;

use crate::error::SqlError;

/// Rows of one message buffer.
const SLICE_ROWS: usize = 512;

pub(super) struct Rows {
    stream: SendableRecordBatchStream,
    batch: Option<RecordBatch>,
    /// The first row of the batch that was not taken.
    at: usize,
}

impl Rows {
    pub(super) fn new(stream: SendableRecordBatchStream) -> Self {
        Self { stream, batch: None, at: 0 }
    }

    pub(super) fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }

    /// Whether all rows were taken of what the statement has given so far.
    pub(super) fn is_waited_for(&self) -> bool {
        self.batch.as_ref().is_none_or(|batch| self.at == batch.num_rows())
    }

    /// The next rows, `rows_max` at most; `None` when there are no more. Can be given up at any
    /// time without losing a row.
    pub(super) async fn next(
        &mut self,
        rows_max: usize,
    ) -> Result<Option<(RecordBatch, Range<usize>)>, SqlError> {
        loop {
            if let Some(batch) = &self.batch {
                let end = batch.num_rows().min(self.at.saturating_add(rows_max.min(SLICE_ROWS)));
                if self.at < end {
                    let range = self.at..end;
                    self.at = end;
                    return Ok(Some((batch.clone(), range)));
                }
            }
            match self.stream.next().await {
                None => return Ok(None),
                Some(batch) => (self.batch, self.at) = (Some(batch?), 0),
            }
        }
    }
}
