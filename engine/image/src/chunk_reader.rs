//! Reading of chunks. Their bytes are used only after the digest was verified.

use std::ops::Deref;

use codec::Block;
use storage::AlignedBuffer;
use volumes::StoredBytes;

use crate::error::{ImageError, ImageErrorKind};
use crate::format::chunk::{ChunkPlace, VerifiedChunk};
use crate::names::PageNumber;
use crate::store::{ImageStore, ObjectName};

impl VerifiedChunk {
    /// Copies the contents of one of its pages into `into`.
    pub(crate) fn read_page(&self, page: PageNumber, into: &mut Block) -> Result<(), ImageError> {
        let damaged = || {
            let attempt = format!("read page {} of {}", page.index(), page.chunk());
            ImageError::new(ImageErrorKind::Damaged, attempt)
        };
        match self.page(page.index()) {
            Some(StoredBytes::Raw(bytes)) => {
                *into = *bytes;
                Ok(())
            }
            Some(StoredBytes::Encoded(bytes)) => {
                codec::decode(bytes, into).map_err(|error| damaged().with_source(error))
            }
            None => Err(damaged().with_source("the chunk has no such page")),
        }
    }
}

/// Reads and verifies a chunk.
pub(crate) fn read_chunk(
    store: &dyn ImageStore,
    place: &ChunkPlace,
) -> Result<VerifiedChunk, ImageError> {
    let mut buffer = AlignedBuffer::new();
    read_bytes(store, place, &mut buffer)?;
    verify_bytes(place, buffer)
}

/// Reads a chunk's bytes without verifying them.
pub(crate) fn read_bytes(
    store: &dyn ImageStore,
    place: &ChunkPlace,
    buffer: &mut AlignedBuffer,
) -> Result<(), ImageError> {
    let object = ObjectName::Pack(place.at.pack);
    let (offset, length) = (u64::from(place.at.offset_bytes), place.length_bytes as usize);
    let read = store.read_to(object, offset, length, buffer);
    read.map_err(|error| ImageError::new(error.kind, place.attempt()).with_source(error))
}

/// Verifies bytes read from the chunk's location.
pub(crate) fn verify_bytes<Bytes: Deref<Target = [u8]>>(
    place: &ChunkPlace,
    bytes: Bytes,
) -> Result<VerifiedChunk<Bytes>, ImageError> {
    VerifiedChunk::verify(bytes, place.kind, &place.digest)
        .map_err(|disbelief| disbelief.error(place.attempt()))
}
