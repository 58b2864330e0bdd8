//! Restore of an image's contents in storage order, while volumes are in use.

use std::collections::BTreeSet;
use std::ops::Deref;

use volumes::StoredBytes;

use crate::chunk_reader::verify_bytes;
use crate::chunk_stream::stream_chunks;
use crate::error::ImageError;
use crate::format::chunk::{ChunkPlace, VerifiedChunk};
use crate::format::manifest::PartRecord;
use crate::format::part::{BlockRef, LEAF_BLOCKS, Part};
use crate::kept_maps::ChangedParts;
use crate::names::{ChunkNumber, PackName, PageNumber};
use crate::open_image::{BlockRun, OpenImage, RUNS_NAMED_MAX, add_block, is_of_object};
use crate::watch::{Progress, Watch, check_cancelled};

const ATTEMPT: &str = "restore an image";

/// Number of blocks resolved before their pages are read. This bounds the memory of a restore.
/// Pages shared by blocks in different groups are read once per group.
const GROUP_BLOCKS_MAX: usize = 512 << 10;

/// Number of successive packs with store errors after which the restore fails, to be retried later.
const FAILURES_MAX: usize = 8;

/// A block of a volume in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockPlace {
    /// Index in the image's volume table.
    pub volume: u32,
    pub block: u64,
}

/// Receiver of restored pages. Called from one thread.
pub trait RestoreTarget {
    /// Returns whether the block still refers to the page. It does not after it was overwritten or
    /// fetched meanwhile.
    fn is_wanted(&mut self, block: BlockPlace, page: PageNumber) -> bool;

    /// Receives verified contents for blocks that refer to the page, in ascending order. An error
    /// ends the restore.
    fn place(
        &mut self,
        page: PageNumber,
        blocks: &[BlockPlace],
        contents: StoredBytes<'_>,
    ) -> Result<(), ImageError>;

    /// Reports a chunk that cannot be read now. Its blocks stay absent, and a later attempt may
    /// succeed.
    fn leave(&mut self, chunk: DamagedChunk);
}

/// A missing or damaged chunk, and the blocks that need it. For a map chunk the blocks are unknown.
#[derive(Debug)]
pub struct DamagedChunk {
    pub chunk: ChunkNumber,
    /// Error with pack, offset and reason.
    pub error: ImageError,
    /// First affected blocks, merged into runs.
    pub blocks: Vec<BlockRun>,
}

/// Results of a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    pub pages_placed: u64,
    pub bytes_read: u64,
    /// Number of chunks that could not be read.
    pub chunks_left: u64,
}

/// Pages with the blocks that need them, from a group.
type Needs = [(PageNumber, BlockPlace)];

impl OpenImage {
    /// Restores all pages that `target` still wants. Skips unreadable chunks. A later call
    /// continues with the remaining blocks. Fails if the store itself fails repeatedly.
    pub fn restore(
        &self,
        target: &mut dyn RestoreTarget,
        watch: &dyn Watch,
    ) -> Result<Restored, ImageError> {
        let mut restore = Restore::begin(self, target, watch);
        for volume in 0..self.volumes().len() {
            restore.volume(volume, &mut |_| true)?;
        }
        Ok(restore.done)
    }

    /// Restores like [`OpenImage::restore`], but only blocks in these map parts.
    pub fn restore_changed(
        &self,
        changed: &ChangedParts,
        target: &mut dyn RestoreTarget,
        watch: &dyn Watch,
    ) -> Result<Restored, ImageError> {
        let mut restore = Restore::begin(self, target, watch);
        for (index, volume) in self.volumes().iter().enumerate() {
            restore.volume(index, &mut |record| changed.has(volume.id, record.part))?;
        }
        Ok(restore.done)
    }
}

struct Restore<'a> {
    image: &'a OpenImage,
    target: &'a mut dyn RestoreTarget,
    watch: &'a dyn Watch,
    progress: Progress,
    done: Restored,
    /// Packs with store errors since the last successful read.
    failing_packs: BTreeSet<PackName>,
    left: BTreeSet<ChunkNumber>,
}

impl<'a> Restore<'a> {
    fn begin(
        image: &'a OpenImage,
        target: &'a mut dyn RestoreTarget,
        watch: &'a dyn Watch,
    ) -> Self {
        let progress = Progress { done_bytes: 0, total_bytes: image.summary().chunk_bytes };
        Self {
            image,
            target,
            watch,
            progress,
            done: Restored::default(),
            failing_packs: BTreeSet::new(),
            left: BTreeSet::new(),
        }
    }

    /// Restores the selected parts of a volume's map.
    fn volume(
        &mut self,
        volume: usize,
        is_wanted: &mut dyn FnMut(&PartRecord) -> bool,
    ) -> Result<(), ImageError> {
        let image = self.image;
        let mut needs = Vec::new();
        for record in image.parts_of(volume).iter().filter(|record| is_wanted(record)) {
            match image.read_part(record) {
                Ok(part) => self.part(record.volume, &part, &mut needs)?,
                Err(error) if is_of_object(error.kind) => {
                    self.done.chunks_left += u64::from(self.left.insert(record.chunk));
                    let (chunk, blocks) = (record.chunk, Vec::new());
                    self.target.leave(DamagedChunk { chunk, error, blocks });
                }
                Err(error) => return Err(error),
            }
        }
        self.group(&mut needs)
    }

    fn part(
        &mut self,
        volume: u32,
        part: &Part,
        needs: &mut Vec<(PageNumber, BlockPlace)>,
    ) -> Result<(), ImageError> {
        for leaf in part.leaves() {
            for (block, found) in (leaf * LEAF_BLOCKS as u64..).zip(part.refs(leaf)) {
                let BlockRef::Page(page) = found else { continue };
                let place = BlockPlace { volume, block };
                if self.target.is_wanted(place, page) {
                    needs.push((page, place));
                }
            }
            if needs.len() + LEAF_BLOCKS > GROUP_BLOCKS_MAX {
                self.group(needs)?;
            }
        }
        Ok(())
    }

    /// Reads the pages for a group of blocks, each chunk once.
    fn group(&mut self, needs: &mut Vec<(PageNumber, BlockPlace)>) -> Result<(), ImageError> {
        needs.sort_unstable();
        let image = self.image;
        let chunks: Vec<&Needs> =
            needs.chunk_by(|one, next| one.0.chunk() == next.0.chunk()).collect();
        let record = |needs: &&Needs| {
            let found = image.chunk(needs[0].0.chunk());
            image.place_of(found.expect("checked with the map"))
        };
        let places: Vec<ChunkPlace> = chunks.iter().map(record).collect();
        stream_chunks(image.store(), &places, &mut |index, bytes| {
            check_cancelled(self.watch, ATTEMPT)?;
            self.chunk(&places[index], chunks[index], bytes)
        })?;
        needs.clear();
        Ok(())
    }

    fn chunk(
        &mut self,
        place: &ChunkPlace,
        needs: &Needs,
        bytes: Result<&[u8], ImageError>,
    ) -> Result<(), ImageError> {
        match bytes.and_then(|bytes| verify_bytes(place, bytes)) {
            Ok(chunk) => self.pages(place, needs, &chunk)?,
            Err(error) => match self.image.read_elsewhere(place, error) {
                Ok(chunk) => self.pages(place, needs, &chunk)?,
                Err(error) => self.leave(place, needs, error)?,
            },
        }
        self.progress.done_bytes += u64::from(place.length_bytes);
        self.watch.on_progress(self.progress);
        Ok(())
    }

    fn pages<Bytes: Deref<Target = [u8]>>(
        &mut self,
        place: &ChunkPlace,
        needs: &Needs,
        chunk: &VerifiedChunk<Bytes>,
    ) -> Result<(), ImageError> {
        self.image.note_chunk(place.number, Ok(()));
        self.failing_packs.clear();
        self.done.bytes_read += chunk.length_bytes() as u64;
        let mut blocks = Vec::new();
        for same in needs.chunk_by(|one, next| one.0 == next.0) {
            let page = same[0].0;
            blocks.clear();
            blocks.extend(same.iter().map(|(_, block)| *block));
            let contents = chunk.page(page.index()).expect("checked with the map");
            self.target.place(page, &blocks, contents)?;
            self.done.pages_placed += blocks.len() as u64;
        }
        Ok(())
    }

    fn leave(
        &mut self,
        place: &ChunkPlace,
        needs: &Needs,
        error: ImageError,
    ) -> Result<(), ImageError> {
        let chunk = place.number;
        self.image.note_chunk(chunk, Err(&error));
        if !is_of_object(error.kind) {
            self.failing_packs.insert(place.at.pack);
            if self.failing_packs.len() == FAILURES_MAX {
                return Err(error);
            }
        }
        self.done.chunks_left += u64::from(self.left.insert(chunk));
        let blocks = self.image.name_blocks(needs);
        self.target.leave(DamagedChunk { chunk, error, blocks });
        Ok(())
    }
}

impl OpenImage {
    /// Merges blocks into runs with their volumes' names.
    fn name_blocks(&self, needs: &Needs) -> Vec<BlockRun> {
        let mut places: Vec<BlockPlace> = needs.iter().map(|(_, place)| *place).collect();
        places.sort_unstable();
        let mut runs = Vec::new();
        for place in places {
            add_block(&mut runs, &self.volumes()[place.volume as usize].name, place.block);
            if runs.len() > RUNS_NAMED_MAX {
                break;
            }
        }
        runs.truncate(RUNS_NAMED_MAX);
        runs
    }
}
