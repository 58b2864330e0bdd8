//! Loading of rows with COPY.

use std::pin::Pin;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::SinkExt;
use tokio_postgres::CopyInSink;

use super::connection::Connection;
use crate::tpcc::database::Fill;

/// A stream of rows to a table. If dropped without `end`, they are discarded.
pub(crate) struct Copy {
    own: Connection,
    table: &'static str,
    sink: Option<Pin<Box<CopyInSink<Bytes>>>>,
}

impl Copy {
    pub(crate) fn new(own: Connection) -> Self {
        Self { own, table: "", sink: None }
    }

    fn failed(&self) -> String {
        format!("cannot copy into {}", self.table)
    }
}

impl Fill for Copy {
    fn begin(&mut self, table: &'static str) -> Result<()> {
        self.table = table;
        let words = format!("COPY {table} FROM STDIN");
        let sink = self.own.wait(self.own.client().copy_in(&words));
        self.sink = Some(Box::pin(sink.with_context(|| self.failed())?));
        Ok(())
    }

    fn take(&mut self, rows: &str) -> Result<()> {
        let mut sink = self.sink.take().context("no table was begun")?;
        let sent = self.own.wait(sink.send(Bytes::from(rows.to_owned())));
        sent.with_context(|| self.failed())?;
        self.sink = Some(sink);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let mut sink = self.sink.take().context("no table was begun")?;
        let done = self.own.wait(sink.as_mut().finish());
        done.with_context(|| self.failed()).map(|_| ())
    }
}
