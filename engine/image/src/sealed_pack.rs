//! Pack that is encrypted while previous data is being written.
//!
//! Two buffers rotate between the appending thread, which encrypts, and one that writes to the pack
//! below. A write error is therefore reported by a later call.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};

use sealing::SetKey;
use storage::AlignedBuffer;

use crate::error::{ImageError, ImageErrorKind};
use crate::format::ALIGNMENT_BYTES;
use crate::format::sealed::{SEALED_GROUP_BYTES, seal_group};
use crate::names::PackName;
use crate::store::{ObjectName, PackWriter};

/// One buffer is filled and sealed while the other is written.
const BUFFER_COUNT: usize = 2;

/// Size of a write, in whole groups: large enough for a disk, but small, because each pack has its
/// own buffers.
const BATCH_BYTES: usize = 4 * SEALED_GROUP_BYTES;

/// A pack whose groups are sealed as they fill.
#[derive(Debug)]
pub(crate) struct SealedPack {
    key: Arc<SetKey>,
    name: PackName,
    /// Index of the group being filled.
    group: u64,
    /// Contents of that group so far, from its header on.
    open: AlignedBuffer,
    /// `None` after finishing or an error.
    behind: Option<Behind>,
}

/// The writing thread.
#[derive(Debug)]
struct Behind {
    full: SyncSender<AlignedBuffer>,
    empty: Receiver<AlignedBuffer>,
    writer: JoinHandle<Result<Box<dyn PackWriter>, ImageError>>,
}

impl SealedPack {
    /// Creates a sealed pack on a pack begun in the store below.
    pub(crate) fn begin(
        below: Box<dyn PackWriter>,
        key: Arc<SetKey>,
        name: PackName,
    ) -> Result<Self, ImageError> {
        let behind = Some(Behind::start(below, name)?);
        Ok(Self { key, name, group: 0, open: AlignedBuffer::new(), behind })
    }

    /// Seals the last group in the buffer.
    fn seal_last(&mut self, sealed: &mut AlignedBuffer, start: usize) -> Result<(), ImageError> {
        seal(&self.key, &mut sealed[start..], ObjectName::Pack(self.name), self.group)?;
        self.group += 1;
        Ok(())
    }

    fn empty_buffer(&mut self) -> Result<AlignedBuffer, ImageError> {
        match self.behind().empty.recv() {
            Ok(buffer) => Ok(buffer),
            Err(_) => Err(self.failure()),
        }
    }

    fn pass_on(&mut self, sealed: AlignedBuffer) -> Result<(), ImageError> {
        match self.behind().full.send(sealed) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.failure()),
        }
    }

    fn behind(&self) -> &Behind {
        self.behind.as_ref().expect("a pack that failed is dropped")
    }

    /// Returns the error with which the writer ended.
    fn failure(&mut self) -> ImageError {
        let behind = self.behind.take().expect("a pack that failed is dropped");
        behind.join().expect_err("the writer ends early only when it fails")
    }
}

impl PackWriter for SealedPack {
    fn append(&mut self, bytes: &AlignedBuffer) -> Result<(), ImageError> {
        let mut sealed = self.empty_buffer()?;
        sealed.reserve(BATCH_BYTES);
        sealed.extend_from_slice(&self.open);
        self.open.clear();
        let (mut start, mut rest) = (0, &bytes[..]);
        while !rest.is_empty() {
            if sealed.len() == start {
                sealed.resize(start + ALIGNMENT_BYTES, 0);
            }
            let room = start + SEALED_GROUP_BYTES - sealed.len();
            let (taken, left) = rest.split_at(room.min(rest.len()));
            sealed.extend_from_slice(taken);
            rest = left;
            if taken.len() == room {
                self.seal_last(&mut sealed, start)?;
                start = sealed.len();
            }
            if start == BATCH_BYTES {
                self.pass_on(sealed)?;
                sealed = self.empty_buffer()?;
                sealed.reserve(BATCH_BYTES);
                start = 0;
            }
        }
        self.open.extend_from_slice(&sealed[start..]);
        sealed.truncate(start);
        self.pass_on(sealed)
    }

    fn finish(mut self: Box<Self>) -> Result<(), ImageError> {
        if !self.open.is_empty() {
            let mut sealed = std::mem::take(&mut self.open);
            self.seal_last(&mut sealed, 0)?;
            self.pass_on(sealed)?;
        }
        let behind = self.behind.take().expect("a pack that failed is dropped");
        behind.join()?.finish()
    }
}

impl Drop for SealedPack {
    /// Waits for the writer, so that nothing is written to an abandoned pack.
    fn drop(&mut self) {
        if let Some(behind) = self.behind.take() {
            // The owner of an abandoned pack already has an error or needs none.
            drop(behind.join());
        }
    }
}

impl Behind {
    fn start(below: Box<dyn PackWriter>, name: PackName) -> Result<Self, ImageError> {
        let (full, batches) = sync_channel(1);
        let (give_back, empty) = channel();
        for _ in 0..BUFFER_COUNT {
            give_back.send(AlignedBuffer::new()).expect("the receiver is in hand");
        }
        let writer = Builder::new().spawn(move || write_all(below, &batches, &give_back));
        let writer = writer.map_err(|error| {
            let attempt = format!("begin pack {name}");
            ImageError::new(ImageErrorKind::Unavailable, attempt).with_source(error)
        })?;
        Ok(Self { full, empty, writer })
    }

    /// Waits until everything is written.
    fn join(self) -> Result<Box<dyn PackWriter>, ImageError> {
        drop(self.full);
        self.writer.join().expect("the writer does not panic")
    }
}

fn write_all(
    mut below: Box<dyn PackWriter>,
    batches: &Receiver<AlignedBuffer>,
    give_back: &Sender<AlignedBuffer>,
) -> Result<Box<dyn PackWriter>, ImageError> {
    while let Ok(mut sealed) = batches.recv() {
        if !sealed.is_empty() {
            below.append(&sealed)?;
            sealed.clear();
        }
        // After the pack is finished, the buffer is no longer needed.
        let _ = give_back.send(sealed);
    }
    Ok(below)
}

/// Seals a group of an object with a new random salt.
pub(crate) fn seal(
    key: &SetKey,
    bytes: &mut [u8],
    object: ObjectName,
    group: u64,
) -> Result<(), ImageError> {
    let salt = key.draw_salt().map_err(|error| {
        let attempt = format!("seal {object}");
        ImageError::new(ImageErrorKind::Unavailable, attempt).with_source(error)
    })?;
    seal_group(bytes, key, &salt, object, group);
    Ok(())
}
