//! Reading many chunks one after the other, on a thread that is ahead of the one that uses them.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use storage::AlignedBuffer;

use crate::chunk_reader::{ChunkPlace, read_bytes};
use crate::error::ImageError;
use crate::format::chunk::CHUNK_BYTES_MAX;
use crate::store::ImageStore;

const BUFFER_COUNT: usize = 4;

/// A chunk's bytes as they were read, not verified yet, or anything and the reason.
type ReadChunk<'a> = (&'a ChunkPlace, AlignedBuffer, Result<(), ImageError>);

/// What is done with each chunk's bytes, which nobody has verified.
pub(crate) type Take<'a> =
    &'a mut dyn FnMut(&ChunkPlace, Result<&[u8], ImageError>) -> Result<(), ImageError>;

/// Reads the chunks in this order and gives each to `take`. Ends with its first error.
pub(crate) fn stream_chunks(
    store: &dyn ImageStore,
    places: &[ChunkPlace],
    take: Take<'_>,
) -> Result<(), ImageError> {
    thread::scope(|scope| {
        let (full, chunks) = sync_channel(BUFFER_COUNT);
        let (give_back, empty) = channel();
        for _ in 0..BUFFER_COUNT {
            give_back.send(AlignedBuffer::new()).expect("the receiver is in hand");
        }
        scope.spawn(move || read_ahead(store, places, (&full, &empty)));
        let result = take_all(&chunks, &give_back, take);
        // The reader ends when it finds nobody there.
        drop((chunks, give_back));
        result
    })
}

fn read_ahead<'a>(
    store: &dyn ImageStore,
    places: &'a [ChunkPlace],
    (full, empty): (&SyncSender<ReadChunk<'a>>, &Receiver<AlignedBuffer>),
) {
    for place in places {
        let Ok(mut buffer) = empty.recv() else { return };
        if buffer.capacity() == 0 {
            buffer.reserve(CHUNK_BYTES_MAX);
        }
        let read = read_bytes(store, place, &mut buffer);
        if full.send((place, buffer, read)).is_err() {
            return;
        }
    }
}

fn take_all(
    chunks: &Receiver<ReadChunk<'_>>,
    give_back: &Sender<AlignedBuffer>,
    take: Take<'_>,
) -> Result<(), ImageError> {
    while let Ok((place, buffer, read)) = chunks.recv() {
        take(place, read.map(|()| &buffer[..]))?;
        // After the last chunk nobody is there to take it.
        let _ = give_back.send(buffer);
    }
    Ok(())
}
