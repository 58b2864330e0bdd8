//! Pipelined writing of packs: one thread writes while another fills the next buffer.
//!
//! Three buffers of 4 MiB rotate: one is filled, one waits, one is written. This bounds the memory
//! of a save, and filling waits for the disk only if no buffer is free.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use storage::AlignedBuffer;

use crate::error::ImageError;
use crate::format::chunk::CHUNK_BYTES_MAX;
use crate::format::manifest::PACK_BYTES_MAX;
use crate::names::{PackName, PackPlace};
use crate::store::{ImageStore, PackWriter};
use crate::watch::{Pace, Watch, check_cancelled};

const BUFFER_COUNT: usize = 3;

/// Two chunks of maximum length.
const BUFFER_BYTES: usize = 2 * CHUNK_BYTES_MAX;

/// Bytes to be written to a pack.
#[derive(Debug)]
struct Batch {
    pack: PackName,
    bytes: AlignedBuffer,
    /// Marks the end of the pack.
    end: PackEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackEnd {
    GoesOn,
    Ends,
}

/// State of the writing thread.
pub(crate) struct Writing<'a> {
    pub(crate) store: &'a dyn ImageStore,
    pub(crate) watch: &'a dyn Watch,
    pub(crate) pace: Pace,
    /// Receives the names of packs that were begun, so that they can be removed after a failure.
    pub(crate) begun: Sender<PackName>,
}

/// Filling side of the pipeline.
#[derive(Debug)]
pub(crate) struct Pipeline<'scope> {
    pack: PackName,
    /// Offset in the pack of the current buffer.
    offset_bytes: u64,
    buffer: AlignedBuffer,
    full: Option<SyncSender<Batch>>,
    empty: Receiver<AlignedBuffer>,
    writer: Option<ScopedJoinHandle<'scope, Result<(), ImageError>>>,
}

impl<'scope> Pipeline<'scope> {
    /// Starts with pack `first`. Later packs have consecutive indices.
    pub(crate) fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        writing: Writing<'env>,
        first: PackName,
    ) -> Self {
        let (full, batches) = sync_channel(1);
        let (give_back, empty) = channel();
        for _ in 1..BUFFER_COUNT {
            let fresh = AlignedBuffer::with_capacity(BUFFER_BYTES);
            give_back.send(fresh).expect("the receiver is in hand");
        }
        let writer = scope.spawn(move || writing.run(&batches, &give_back));
        Self {
            pack: first,
            offset_bytes: 0,
            buffer: AlignedBuffer::with_capacity(BUFFER_BYTES),
            full: Some(full),
            empty,
            writer: Some(writer),
        }
    }

    /// Returns the buffer with space for a maximum-length chunk at its end, and the location of
    /// that end.
    pub(crate) fn room(&mut self) -> Result<(&mut AlignedBuffer, PackPlace), ImageError> {
        let end = self.end_bytes();
        if end + CHUNK_BYTES_MAX as u64 > PACK_BYTES_MAX {
            self.send(PackEnd::Ends)?;
            self.pack.index += 1;
            self.offset_bytes = 0;
        } else if self.buffer.len() + CHUNK_BYTES_MAX > BUFFER_BYTES {
            self.send(PackEnd::GoesOn)?;
            self.offset_bytes = end;
        }
        let offset_bytes = u32::try_from(self.end_bytes()).expect("packs are short");
        Ok((&mut self.buffer, PackPlace { pack: self.pack, offset_bytes }))
    }

    /// Discards everything appended since [`Pipeline::room`].
    pub(crate) fn take_back(&mut self, place: PackPlace) {
        let length = u64::from(place.offset_bytes) - self.offset_bytes;
        let length = usize::try_from(length).expect("buffers are short");
        self.buffer.truncate(length);
    }

    /// Waits until everything is written and durable.
    pub(crate) fn finish(mut self) -> Result<(), ImageError> {
        if self.end_bytes() > 0 {
            self.send(PackEnd::Ends)?;
        }
        self.join()
    }

    fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.buffer.len() as u64
    }

    fn send(&mut self, end: PackEnd) -> Result<(), ImageError> {
        let full = self.full.as_ref().expect("only finishing takes it");
        let bytes = std::mem::take(&mut self.buffer);
        let batch = Batch { pack: self.pack, bytes, end };
        let sent = full.send(batch).is_ok();
        match self.empty.recv() {
            Ok(empty) if sent => {
                self.buffer = empty;
                Ok(())
            }
            _ => Err(self.join().expect_err("the writer ends early only when it fails")),
        }
    }

    fn join(&mut self) -> Result<(), ImageError> {
        self.full = None;
        let writer = self.writer.take().expect("it is joined once");
        writer.join().expect("the writer does not panic")
    }
}

impl Writing<'_> {
    fn run(
        mut self,
        batches: &Receiver<Batch>,
        give_back: &Sender<AlignedBuffer>,
    ) -> Result<(), ImageError> {
        let mut pack: Option<Box<dyn PackWriter>> = None;
        while let Ok(mut batch) = batches.recv() {
            check_cancelled(self.watch, "save an image")?;
            let mut writer = match pack.take() {
                Some(writer) => writer,
                None => self.begin(batch.pack)?,
            };
            if !batch.bytes.is_empty() {
                writer.append(&batch.bytes)?;
                self.pace.wait(batch.bytes.len() as u64, self.watch);
            }
            match batch.end {
                PackEnd::Ends => writer.finish()?,
                PackEnd::GoesOn => pack = Some(writer),
            }
            batch.bytes.clear();
            // The filling side may have failed and no longer need the buffer.
            let _ = give_back.send(batch.bytes);
        }
        Ok(())
    }

    fn begin(&self, pack: PackName) -> Result<Box<dyn PackWriter>, ImageError> {
        let writer = self.store.begin_pack(pack)?;
        self.begun.send(pack).expect("the save listens until it returns");
        Ok(writer)
    }
}
