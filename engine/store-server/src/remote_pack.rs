//! Upload of a pack in parts. Each part is durable once acknowledged, and may be repeated.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use image::{ImageError, ImageErrorKind, ObjectName, PackName, PackWriter};
use reqwest::Method;
use storage::AlignedBuffer;
use tokio::task::JoinHandle;

use crate::connection::{Asking, Connection, RunOn};
use crate::trouble::Trouble;
use crate::wire::{PART_BYTES_MAX, path_of};

#[derive(Debug)]
pub(crate) struct RemotePack {
    connection: Arc<Connection>,
    name: PackName,
    part: Vec<u8>,
    /// Total length of the parts that were sent.
    sent_bytes: u64,
    /// Unacknowledged part. A pack needs memory for this part and for the one being filled.
    under_way: Option<JoinHandle<Result<Bytes, Trouble>>>,
}

impl RemotePack {
    pub(crate) fn new(connection: Arc<Connection>, name: PackName) -> Self {
        Self { connection, name, part: Vec::new(), sent_bytes: 0, under_way: None }
    }

    /// Sends the current part once the previous one is durable.
    fn send_part(&mut self, is_last: bool) -> Result<(), ImageError> {
        self.wait()?;
        let body = Bytes::from(mem::take(&mut self.part));
        let offset = self.sent_bytes;
        self.sent_bytes += body.len() as u64;
        let mut path = format!("{}?offset={offset}", path_of(ObjectName::Pack(self.name)));
        if is_last {
            path += &format!("&length={}", self.sent_bytes);
        }
        let asking = Asking { method: Method::PUT, path, body, answer_bytes_max: 0 };
        let connection = Arc::clone(&self.connection);
        let sending = async move { connection.ask_repeatedly(RunOn::SharedThreads, asking).await };
        self.under_way = Some(self.connection.runtime().spawn(sending));
        Ok(())
    }

    fn wait(&mut self) -> Result<(), ImageError> {
        let Some(part) = self.under_way.take() else { return Ok(()) };
        let attempt = || format!("write pack {}", self.name);
        match self.connection.runtime().block_on(part) {
            Ok(sent) => sent.map(drop).map_err(|trouble| self.connection.error(trouble, attempt())),
            // The request's task ended without a result: the store is being shut down.
            Err(error) => {
                Err(ImageError::new(ImageErrorKind::Unavailable, attempt()).with_source(error))
            }
        }
    }
}

impl PackWriter for RemotePack {
    fn append(&mut self, bytes: &AlignedBuffer) -> Result<(), ImageError> {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            // A full part is sent with the next bytes, because the last one differs.
            if self.part.len() == PART_BYTES_MAX {
                self.send_part(false)?;
            }
            let room = PART_BYTES_MAX - self.part.len();
            let (fitting, later) = rest.split_at(room.min(rest.len()));
            if self.part.capacity() == 0 {
                self.part.reserve_exact(PART_BYTES_MAX);
            }
            self.part.extend_from_slice(fitting);
            rest = later;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), ImageError> {
        self.send_part(true)?;
        self.wait()
    }
}

impl Drop for RemotePack {
    fn drop(&mut self) {
        if let Some(part) = self.under_way.take() {
            part.abort();
        }
    }
}
