//! Reading many chunks on threads that are ahead of the one that uses them.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use storage::AlignedBuffer;

use crate::chunk_reader::{ChunkPlace, read_bytes};
use crate::error::ImageError;
use crate::format::chunk::CHUNK_BYTES_MAX;
use crate::store::ImageStore;

/// Chunks that were read and not used yet, or are being read, for each reader.
const BUFFERS_A_READER: usize = 2;

/// Readers at most, whatever the store asks for: with their buffers they bound the memory.
const READERS_MAX: usize = 6;

/// A chunk's index, its bytes as they were read, not verified yet, or anything and the reason.
struct ReadChunk {
    index: usize,
    reader: usize,
    buffer: AlignedBuffer,
    result: Result<(), ImageError>,
}

/// What is done with each chunk, by its index: its bytes, which nobody has verified.
pub(crate) type Take<'a> =
    &'a mut dyn FnMut(usize, Result<&[u8], ImageError>) -> Result<(), ImageError>;

/// Reads the chunks, about in this order, and gives each to `take`. Ends with its first error.
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
            scope.spawn(move || read_ahead((store, places, next), reader, (&full, &empty)));
        }
        drop(full);
        let result = take_all(&chunks, &give_back, take);
        // The readers end when they find nobody there.
        drop((chunks, give_back));
        result
    })
}

fn read_ahead(
    (store, places, next): (&dyn ImageStore, &[ChunkPlace], &Mutex<std::ops::Range<usize>>),
    reader: usize,
    (full, empty): (&SyncSender<ReadChunk>, &Receiver<AlignedBuffer>),
) {
    while let Ok(mut buffer) = empty.recv() {
        let index = next.lock().expect("nobody panics with it locked").next();
        let Some(index) = index else { return };
        if buffer.capacity() == 0 {
            buffer.reserve(CHUNK_BYTES_MAX);
        }
        let result = read_bytes(store, &places[index], &mut buffer);
        if full.send(ReadChunk { index, reader, buffer, result }).is_err() {
            return;
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
        // After the last chunk nobody is there to take it.
        let _ = give_back[reader].send(buffer);
    }
    Ok(())
}
