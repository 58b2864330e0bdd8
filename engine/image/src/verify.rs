//! Verification of all bytes of an image.

use codec::BLOCK_BYTES;
use volumes::StoredBytes;

use crate::chunk_reader::verify_bytes;
use crate::chunk_stream::stream_chunks;
use crate::error::{ImageError, ImageErrorKind};
use crate::format::chunk::{ChunkKind, ChunkPlace, VerifiedChunk};
use crate::format::part::{BlockRef, LEAF_BLOCKS, Part};
use crate::names::ChunkNumber;
use crate::open_image::{BlockRun, OpenImage, RUNS_NAMED_MAX, add_block, is_of_object};
use crate::restore::DamagedChunk;
use crate::watch::{Progress, Watch, check_cancelled};

/// Maximum number of damaged chunks that are described. Further ones are only counted.
const DAMAGE_DESCRIBED_MAX: usize = 100;

/// Result of a verification.
#[derive(Debug, Default)]
pub struct Verified {
    pub chunk_count: u64,
    pub bytes_read: u64,
    pub pages_decoded: u64,
    /// 0 if the image can be restored completely.
    pub chunks_damaged: u64,
    /// First damaged chunks. For a damaged map the affected blocks are unknown.
    pub damage: Vec<DamagedChunk>,
    /// Number of blocks whose contents were lost before the image was saved.
    pub lost_blocks: u64,
    /// First lost blocks.
    pub lost: Vec<BlockRun>,
}

impl OpenImage {
    /// Reads all chunks of the image, verifies their digests and decodes their contents. Fails only
    /// if the store fails. Damage is part of the result.
    pub fn verify(&self, watch: &dyn Watch) -> Result<Verified, ImageError> {
        self.store().forget_reads();
        let mut verified = Verified::default();
        let mut progress = Progress { done_bytes: 0, total_bytes: self.summary().chunk_bytes };
        let places: Vec<ChunkPlace> =
            self.chunks().iter().map(|chunk| self.place_of(chunk)).collect();
        stream_chunks(self.store(), &places, &mut |index, bytes| {
            let place = &places[index];
            check_cancelled(watch, "verify an image")?;
            verified.chunk_count += 1;
            verified.bytes_read += u64::from(place.length_bytes);
            match bytes.and_then(|bytes| self.check_chunk(place, bytes)) {
                Ok(page_count) => verified.pages_decoded += page_count,
                Err(error) if is_of_object(error.kind) => verified.add_damage(place.number, error),
                Err(error) => return Err(error),
            }
            progress.done_bytes += u64::from(place.length_bytes);
            watch.on_progress(progress);
            Ok(())
        })?;
        self.check_maps(&mut verified)?;
        for damage in &mut verified.damage {
            // Incomplete if a map is damaged.
            damage.blocks = self.blocks_of(damage.chunk).unwrap_or_default();
        }
        Ok(verified)
    }

    /// Returns the number of valid pages.
    fn check_chunk(&self, place: &ChunkPlace, bytes: &[u8]) -> Result<u64, ImageError> {
        let chunk = verify_bytes(place, bytes)?;
        if place.kind == ChunkKind::Pages {
            self.check_pages(place, &chunk)?;
        }
        Ok(chunk.page_count() as u64)
    }

    fn check_pages(
        &self,
        place: &ChunkPlace,
        chunk: &VerifiedChunk<&[u8]>,
    ) -> Result<(), ImageError> {
        let damaged = |what: String| {
            let attempt = format!("{} and decode it", place.attempt());
            ImageError::new(ImageErrorKind::Damaged, attempt).with_source(what)
        };
        let record = self.chunk(place.number);
        let recorded = record.map_or(0, |chunk| usize::from(chunk.page_count));
        if recorded != chunk.page_count() {
            let found = chunk.page_count();
            return Err(damaged(format!("it has {found} pages, and {recorded} are recorded")));
        }
        let mut block = [0; BLOCK_BYTES];
        for page in 0..chunk.page_count() {
            if let Some(StoredBytes::Encoded(encoded)) = chunk.page(page) {
                let decoded = codec::decode(encoded, &mut block);
                decoded.map_err(|error| damaged(format!("page {page}: {error}")))?;
            }
        }
        Ok(())
    }

    fn check_maps(&self, verified: &mut Verified) -> Result<(), ImageError> {
        for (volume, record) in self.volumes().iter().enumerate() {
            for part in self.parts_of(volume) {
                match self.read_part(part) {
                    Ok(part) => verified.add_lost(&record.name, &part),
                    Err(error) if !is_of_object(error.kind) => return Err(error),
                    Err(error) => verified.add_damage(part.chunk, error),
                }
            }
        }
        Ok(())
    }
}

impl Verified {
    /// Records the blocks that a map part marks as lost.
    fn add_lost(&mut self, volume: &str, part: &Part) {
        for leaf in part.leaves() {
            for (block, found) in (leaf * LEAF_BLOCKS as u64..).zip(part.refs(leaf)) {
                if found == BlockRef::Damaged {
                    self.lost_blocks += 1;
                    add_block(&mut self.lost, volume, block);
                    self.lost.truncate(RUNS_NAMED_MAX);
                }
            }
        }
    }

    fn add_damage(&mut self, chunk: ChunkNumber, error: ImageError) {
        let is_known = self.damage.iter().any(|damage| damage.chunk == chunk);
        if is_known {
            return;
        }
        self.chunks_damaged += 1;
        if self.damage.len() < DAMAGE_DESCRIBED_MAX {
            self.damage.push(DamagedChunk { chunk, error, blocks: Vec::new() });
        }
    }
}
