//! Multipart upload of a pack.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use image::{ImageError, ImageErrorKind, PackName, PackWriter};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use storage::AlignedBuffer;
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::failure::image_error;

/// Part size. S3 requires at least 5 MiB, except for the last part.
const PART_BYTES: usize = 6 << 20;

/// Maximum number of concurrent part uploads. With the part being filled, this bounds the memory of
/// a pack.
const PARTS_UNDER_WAY_MAX: usize = 2;

/// Maximum time for aborting an upload.
const ABORT_WAIT_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct ObjectPack {
    client: Arc<Client>,
    name: PackName,
    path: Path,
    part: Vec<u8>,
    /// Created with the first full part. Smaller packs are put in one request.
    upload: Option<Box<dyn MultipartUpload>>,
    under_way: VecDeque<JoinHandle<object_store::Result<()>>>,
}

impl ObjectPack {
    pub(crate) fn new(client: Arc<Client>, name: PackName, path: Path) -> Self {
        let under_way = VecDeque::with_capacity(PARTS_UNDER_WAY_MAX);
        Self { client, name, path, part: Vec::new(), upload: None, under_way }
    }

    /// Starts the upload of the current part.
    fn send_part(&mut self) -> Result<(), ImageError> {
        if self.under_way.len() == PARTS_UNDER_WAY_MAX {
            self.wait_for_one()?;
        }
        let payload = PutPayload::from(mem::take(&mut self.part));
        if self.upload.is_none() {
            let upload = self.client.wait(self.client.objects.put_multipart(&self.path));
            self.upload = Some(upload.map_err(|error| self.failed(error))?);
        }
        let upload = self.upload.as_mut().expect("it was begun just now");
        let part = upload.put_part(payload);
        self.under_way.push_back(self.client.runtime().spawn(part));
        Ok(())
    }

    fn wait_for_one(&mut self) -> Result<(), ImageError> {
        let Some(part) = self.under_way.pop_front() else { return Ok(()) };
        match self.client.wait(part) {
            Ok(put) => put.map_err(|error| self.failed(error)),
            // The request's task ended without a result: the store is being shut down.
            Err(error) => {
                let attempt = format!("write pack {}", self.name);
                Err(ImageError::new(ImageErrorKind::Unavailable, attempt).with_source(error))
            }
        }
    }

    fn failed(&self, error: object_store::Error) -> ImageError {
        image_error(error, format!("write pack {}", self.name))
    }
}

impl PackWriter for ObjectPack {
    fn append(&mut self, bytes: &AlignedBuffer) -> Result<(), ImageError> {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let room = PART_BYTES - self.part.len();
            let (fitting, later) = rest.split_at(room.min(rest.len()));
            if self.part.capacity() == 0 {
                self.part.reserve_exact(PART_BYTES);
            }
            self.part.extend_from_slice(fitting);
            rest = later;
            if self.part.len() == PART_BYTES {
                self.send_part()?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), ImageError> {
        if self.upload.is_none() {
            let payload = PutPayload::from(mem::take(&mut self.part));
            let put = self.client.wait(self.client.objects.put(&self.path, payload));
            return put.map(|_| ()).map_err(|error| self.failed(error));
        }
        if !self.part.is_empty() {
            self.send_part()?;
        }
        while !self.under_way.is_empty() {
            self.wait_for_one()?;
        }
        let upload = self.upload.as_mut().expect("it was begun");
        let completed = self.client.wait(upload.complete());
        completed.map_err(|error| self.failed(error))?;
        // The upload is complete, so drop must not abort it.
        self.upload = None;
        Ok(())
    }
}

impl Drop for ObjectPack {
    fn drop(&mut self) {
        self.under_way.iter().for_each(JoinHandle::abort);
        let Some(mut upload) = self.upload.take() else { return };
        // Orphaned parts would cost money. If this fails, the store's lifecycle rules remove them.
        let _ = self
            .client
            .wait(async move { tokio::time::timeout(ABORT_WAIT_MAX, upload.abort()).await });
    }
}
