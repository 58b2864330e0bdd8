//! COPY TO and COPY FROM.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::ScalarValue;
use tokio::task::yield_now;

use super::interrupt::{Ending, Interrupt};
use super::io::{Io, SEND_BYTES, Stream};
use super::rows::Rows;
use super::state::Connection;
use super::transaction::Taken;
use crate::error::{SqlError, SqlState};
use crate::host::{Flow, PublishedRecord};
use crate::statements::InsertPlan;
use crate::wire::{CopiedRow, CopyForm, CopyIn, CopyOut, Format, Request, read_copied};

/// Maximum number of rows converted to records at once.
const ROW_COUNT: usize = 512;

impl Connection {
    pub(super) async fn copy_out<S: Stream>(
        &mut self,
        io: &mut Io<S>,
        (mut rows, form): (Rows, CopyForm),
        interrupt: &Interrupt,
    ) -> Result<String, Ending> {
        let schema = rows.schema();
        let names: Vec<_> = schema.fields().iter().map(|it| it.name().as_str()).collect();
        let style = self.variables.interval_style();
        let mut copy = CopyOut::begin(&mut io.out, &names, (form, style));
        if rows.is_live() {
            interrupt.send(io).await?;
        }
        let mut count = 0;
        loop {
            interrupt.unless(io, self.wait_for_rate(Flow::Received)).await?;
            let Some(chunk) = interrupt.unless(io, rows.next(usize::MAX)).await? else { break };
            count += chunk.len();
            self.put_rows(&mut io.out, chunk.len(), |out| chunk.put_copy(out, &mut copy))?;
            if io.out.0.len() >= SEND_BYTES || rows.is_waited_for() {
                interrupt.send(io).await?;
            }
        }
        copy.end(&mut io.out);
        Ok(format!("COPY {count}"))
    }

    /// Receives rows and buffers them until the end of the transaction, all or none, as INSERT
    /// does.
    pub(super) async fn copy_in<S: Stream>(
        &mut self,
        io: &mut Io<S>,
        (insert, mut copy): (&InsertPlan, CopyIn),
        interrupt: &Interrupt,
    ) -> Result<String, Ending> {
        self.check_insert(insert)?;
        io.out.copy_in(copy.columns().len(), copy.value_format());
        interrupt.send(io).await?;
        let bytes_max = self.server.limits.message_bytes;
        let mut taken = Taken::new(self.work.inserted_bytes);
        loop {
            let is_end = match interrupt.request(io, bytes_max).await? {
                Request::CopyData(bytes) => {
                    copy.push(&bytes)?;
                    false
                }
                Request::CopyDone => true,
                Request::CopyFail(why) => {
                    let what = format!("COPY from stdin failed: {why}");
                    return Err(SqlError::new(SqlState::CANCELLED, what).into());
                }
                // Clients may send these before they see the server's CopyInResponse.
                Request::Flush | Request::Sync => continue,
                Request::Terminate => return Err(Ending::Closed),
                _ => {
                    let what = "unexpected message type during COPY from stdin";
                    return Err(SqlError::protocol(what).into());
                }
            };
            while take_rows(insert, &mut copy, &mut taken, is_end)? {
                // A message can contain many rows, and the client may disconnect meanwhile.
                let others = async {
                    yield_now().await;
                    Ok(())
                };
                interrupt.unless(io, others).await?;
            }
            if is_end {
                let count = self.keep_inserted(&insert.topic, taken)?;
                return Ok(format!("COPY {count}"));
            }
        }
    }
}

/// Converts a limited number of complete rows to records. Returns `false` if there were none.
fn take_rows(
    insert: &InsertPlan,
    copy: &mut CopyIn,
    taken: &mut Taken,
    is_end: bool,
) -> Result<bool, SqlError> {
    let mut rows: Vec<(u64, CopiedRow)> = Vec::new();
    while rows.len() < ROW_COUNT {
        match copy.row(is_end) {
            Ok(Some(row)) => rows.push((copy.line(), row)),
            Ok(None) => break,
            Err(error) => {
                // Of several errors, report the first.
                if !rows.is_empty() {
                    records(insert, copy, &rows)?;
                }
                return Err(at_line(error, insert, copy.line()));
            }
        }
    }
    if rows.is_empty() {
        return Ok(false);
    }
    taken.add(records(insert, copy, &rows)?)?;
    Ok(true)
}

fn records(
    insert: &InsertPlan,
    copy: &CopyIn,
    rows: &[(u64, CopiedRow)],
) -> Result<Vec<PublishedRecord>, SqlError> {
    let of = |rows: &[(u64, CopiedRow)]| insert.records(&batch(insert, copy, rows)?);
    of(rows).map_err(|error| {
        // The failing row is located only after a batch has failed.
        let one = rows.iter().find_map(|row| {
            let found = of(std::slice::from_ref(row)).err()?;
            Some(at_line(found, insert, row.0))
        });
        one.unwrap_or(error)
    })
}

fn at_line(error: SqlError, insert: &InsertPlan, line: u64) -> SqlError {
    SqlError { context: Some(format!("COPY {}, line {line}", insert.table)), ..error }
}

fn batch(
    insert: &InsertPlan,
    copy: &CopyIn,
    rows: &[(u64, CopiedRow)],
) -> Result<RecordBatch, SqlError> {
    let types = insert.types();
    let arrays = types.iter().enumerate().map(|(index, of)| {
        let values = rows.iter().map(|(_, row)| row[index].as_deref());
        match copy.value_format() {
            Format::Text(_) => {
                let text = |it| std::str::from_utf8(it).expect("rows of texts are UTF-8");
                let texts = values.map(|it| it.map(text));
                Ok(Arc::new(StringViewArray::from_iter(texts)) as ArrayRef)
            }
            Format::Binary => {
                let values = values.map(|it| read_copied(it, *of));
                Ok(ScalarValue::iter_to_array(values.collect::<Result<Vec<_>, _>>()?)?)
            }
        }
    });
    let arrays = arrays.collect::<Result<Vec<_>, SqlError>>()?;
    let fields = copy.columns().iter().zip(&arrays);
    let fields = fields.map(|(name, it)| Field::new(name, it.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, arrays)
        .map_err(|error| SqlError::new(SqlState::INTERNAL, error.to_string()))
}
