//! Read-ahead of many chunks on several threads.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use storage::AlignedBuffer;

use crate::chunk_reader::read_bytes;
use crate::error::ImageError;
use crate::format::chunk::{CHUNK_BYTES_MAX, ChunkPlace};
use crate::store::ImageStore;

/// Number of buffers per reader, for chunks being read or read but not yet consumed.
const BUFFERS_A_READER: usize = 2;

/// Maximum number of readers, whatever the store suggests. With their buffers they bound memory
/// use.
const READERS_MAX: usize = 6;

/// A chunk's index and its unverified bytes. The bytes are undefined if the read failed.
struct ReadChunk {
    index: usize,
    reader: usize,
    buffer: AlignedBuffer,
    result: Result<(), ImageError>,
}

/// Callback for each chunk, with its index and its unverified bytes.
pub(crate) type Take<'a> =
    &'a mut dyn FnMut(usize, Result<&[u8], ImageError>) -> Result<(), ImageError>;

/// Reads chunks in roughly this order and passes each to `take`. Stops at its first error.
pub(crate) fn stream_chunks(
    store: &dyn ImageStore,
    places: &[ChunkPlace],
    take: Take<'_>,
) -> Result<(), ImageError> {
    let reader_count = store.reads_at_once().clamp(1, READERS_MAX).min(places.len());
    let next = Mutex::new(0..places.len());
    thread::scope(|scope| {
        let (full, chunks) = sync_channel(reader_count * BUFFERS_A_READER);
        let mut give_back = Vec::with_capacity(reader_count);
        for reader in 0..reader_count {
            let (buffers, empty) = channel();
            for _ in 0..BUFFERS_A_READER {
                buffers.send(AlignedBuffer::new()).expect("the receiver is in hand");
            }
            give_back.push(buffers);
            let (full, next) = (full.clone(), &next);
            let reading = Reader { store, places, next, number: reader, full };
            scope.spawn(move || reading.read_ahead(&empty));
        }
        drop(full);
        let result = take_all(&chunks, &give_back, take);
        // Closing the channels stops the readers.
        drop((chunks, give_back));
        result
    })
}

/// A reading thread.
struct Reader<'a> {
    store: &'a dyn ImageStore,
    places: &'a [ChunkPlace],
    /// Chunks not yet claimed by a reader.
    next: &'a Mutex<Range<usize>>,
    number: usize,
    full: SyncSender<ReadChunk>,
}

impl Reader<'_> {
    fn read_ahead(self, empty: &Receiver<AlignedBuffer>) {
        while let Ok(mut buffer) = empty.recv() {
            let index = self.next.lock().expect("no thread panics with it locked").next();
            let Some(index) = index else { return };
            if buffer.capacity() == 0 {
                buffer.reserve(CHUNK_BYTES_MAX);
            }
            let result = read_bytes(self.store, &self.places[index], &mut buffer);
            let chunk = ReadChunk { index, reader: self.number, buffer, result };
            if self.full.send(chunk).is_err() {
                return;
            }
        }
    }
}

fn take_all(
    chunks: &Receiver<ReadChunk>,
    give_back: &[Sender<AlignedBuffer>],
    take: Take<'_>,
) -> Result<(), ImageError> {
    while let Ok(ReadChunk { index, reader, buffer, result }) = chunks.recv() {
        take(index, result.map(|()| &buffer[..]))?;
        // The reader has ended after the last chunk.
        let _ = give_back[reader].send(buffer);
    }
    Ok(())
}
