//! Reading chunks, and believing them only when their bytes have the digest that they had.

use codec::Block;
use storage::AlignedBuffer;

use crate::error::{ImageError, ImageErrorKind};
use crate::format::chunk::{ChunkIndex, ChunkKind, Digest, Stored};
use crate::names::{ChunkNumber, PackName, PageNumber};
use crate::store::{ImageStore, ObjectName};

/// Where a chunk lies, and what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPlace {
    pub(crate) number: ChunkNumber,
    pub(crate) pack: PackName,
    pub(crate) offset_bytes: u32,
    pub(crate) length_bytes: u32,
    pub(crate) kind: ChunkKind,
    pub(crate) digest: Digest,
}

impl ChunkPlace {
    pub(crate) fn attempt(&self) -> String {
        let Self { number, pack, offset_bytes, .. } = self;
        format!("read {number} at {offset_bytes} of pack {pack}")
    }
}

/// A chunk whose bytes are those that were written.
#[derive(Debug)]
pub(crate) struct VerifiedChunk {
    pub(crate) bytes: AlignedBuffer,
    pub(crate) index: ChunkIndex,
}

impl VerifiedChunk {
    /// Fills `into` with the contents of one of its pages.
    pub(crate) fn read_page(&self, page: PageNumber, into: &mut Block) -> Result<(), ImageError> {
        let damaged = || {
            let attempt = format!("read page {} of {}", page.index(), page.chunk());
            ImageError::new(ImageErrorKind::Damaged, attempt)
        };
        match self.index.page(&self.bytes, page.index()) {
            Some(Stored::Raw(bytes)) => {
                *into = *bytes;
                Ok(())
            }
            Some(Stored::Encoded(bytes)) => {
                codec::decode(bytes, into).map_err(|error| damaged().with_source(error))
            }
            None => Err(damaged().with_source("the chunk has no such page")),
        }
    }
}

/// Reads a chunk into `buffer`, whatever that held.
pub(crate) fn read_chunk(
    store: &dyn ImageStore,
    place: &ChunkPlace,
    mut buffer: AlignedBuffer,
) -> Result<VerifiedChunk, ImageError> {
    read_bytes(store, place, &mut buffer)?;
    let index = verify_bytes(place, &buffer)?;
    Ok(VerifiedChunk { bytes: buffer, index })
}

/// Reads a chunk's bytes without believing them.
pub(crate) fn read_bytes(
    store: &dyn ImageStore,
    place: &ChunkPlace,
    buffer: &mut AlignedBuffer,
) -> Result<(), ImageError> {
    buffer.resize(place.length_bytes as usize, 0);
    let object = ObjectName::Pack(place.pack);
    let read = store.read(object, u64::from(place.offset_bytes), buffer);
    read.map_err(|error| ImageError::new(error.kind, place.attempt()).with_source(error))
}

/// Believes bytes that were read from the chunk's place.
pub(crate) fn verify_bytes(place: &ChunkPlace, bytes: &[u8]) -> Result<ChunkIndex, ImageError> {
    ChunkIndex::verify(bytes, (place.kind, &place.digest))
        .map_err(|disbelief| disbelief.error(place.attempt()))
}
