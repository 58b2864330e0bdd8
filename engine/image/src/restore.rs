//! Bringing back what an image has, in the order in which it lies there, while others use it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use crate::chunk_reader::{ChunkPlace, verify_bytes};
use crate::chunk_stream::stream_chunks;
use crate::error::{ImageError, ImageErrorKind};
use crate::format::chunk::{ChunkIndex, Stored};
use crate::format::part::BlockRef;
use crate::names::{ChunkNumber, PageNumber};
use crate::open_image::{BlockRun, OpenImage};
use crate::watch::{Progress, Watch, check_cancelled};

const ATTEMPT: &str = "restore an image";

/// Blocks looked up before their pages are read: what bounds the memory of a restore. Pages that
/// blocks further apart share are read once for each such group.
const GROUP_BLOCKS_MAX: usize = 512 << 10;

/// Failures of the store in a row before giving up until later.
const FAILURES_MAX: usize = 8;

/// Runs of blocks that are named with a damaged chunk.
const RUNS_NAMED_MAX: usize = 64;

/// A block of a volume in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockPlace {
    /// Index among the image's volumes.
    pub volume: u32,
    pub block: u64,
}

/// Who takes the pages. Called from one thread.
pub trait RestoreTarget {
    /// Whether the block still refers to the page. Others were overwritten or fetched meanwhile.
    fn is_wanted(&mut self, block: BlockPlace, page: PageNumber) -> bool;

    /// Takes verified contents for blocks that refer to the page, ascending. An error ends it all.
    fn place(
        &mut self,
        page: PageNumber,
        blocks: &[BlockPlace],
        contents: Stored<'_>,
    ) -> Result<(), ImageError>;

    /// Learns that a chunk is damaged: its pages are lost to these blocks, which are all that want
    /// one now.
    fn lose(&mut self, damage: DamagedChunk, lost: &[(PageNumber, BlockPlace)]);
}

/// A chunk that cannot be believed, and who needs it.
#[derive(Debug)]
pub struct DamagedChunk {
    pub chunk: ChunkNumber,
    /// Names the pack, the place there and the reason.
    pub error: ImageError,
    /// The first of them, joined into runs.
    pub blocks: Vec<BlockRun>,
}

/// What a restore did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    pub pages_placed: u64,
    pub bytes_read: u64,
    pub chunks_damaged: u64,
}

/// The blocks that need a page, from a group's list.
type Needs = [(PageNumber, BlockPlace)];

impl OpenImage {
    /// Gives all pages that are still wanted to `target`, then returns. What fails because the
    /// store fails is left out; if there was any, that is the error in the end, and calling again
    /// goes on with what is still wanted.
    pub fn restore(
        &self,
        target: &mut dyn RestoreTarget,
        watch: &dyn Watch,
    ) -> Result<Restored, ImageError> {
        let total_bytes = self.summary().chunk_bytes;
        let progress = Progress { done_bytes: 0, total_bytes };
        let mut restore = Restore {
            image: self,
            target,
            watch,
            progress,
            done: Restored::default(),
            failures: Vec::new(),
            damaged: BTreeSet::new(),
        };
        for volume in 0..self.volumes().len() {
            restore.volume(volume)?;
        }
        match restore.failures.pop() {
            Some(error) => Err(error),
            None => Ok(restore.done),
        }
    }
}

struct Restore<'a> {
    image: &'a OpenImage,
    target: &'a mut dyn RestoreTarget,
    watch: &'a dyn Watch,
    progress: Progress,
    done: Restored,
    /// Of the store, in a row.
    failures: Vec<ImageError>,
    damaged: BTreeSet<ChunkNumber>,
}

impl Restore<'_> {
    fn volume(&mut self, volume: usize) -> Result<(), ImageError> {
        let index = u32::try_from(volume).expect("an image has few volumes");
        let mut needs = Vec::new();
        let mut result = Ok(());
        self.image.leaves(volume, &mut |leaf, refs| {
            for (block, found) in (leaf * 512..).zip(refs) {
                let BlockRef::Page(page) = found else { continue };
                let place = BlockPlace { volume: index, block };
                if self.target.is_wanted(place, *page) {
                    needs.push((*page, place));
                }
            }
            if needs.len() + 512 > GROUP_BLOCKS_MAX {
                result = self.group(&mut needs);
            }
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result?;
        self.group(&mut needs)
    }

    /// Reads what a group of blocks needs, each chunk once.
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
            self.chunk((&places[index], chunks[index]), bytes)
        })?;
        needs.clear();
        Ok(())
    }

    fn chunk(
        &mut self,
        (place, needs): (&ChunkPlace, &Needs),
        bytes: Result<&[u8], ImageError>,
    ) -> Result<(), ImageError> {
        let verified = bytes.and_then(|bytes| Ok((bytes, verify_bytes(place, bytes)?)));
        match verified {
            Ok((bytes, index)) => {
                self.failures.clear();
                self.done.bytes_read += bytes.len() as u64;
                self.pages(needs, (bytes, &index))?;
            }
            Err(error) if is_lasting(error.kind) => self.lose(place.number, needs, error),
            Err(error) => {
                self.failures.push(error);
                if self.failures.len() == FAILURES_MAX {
                    return Err(self.failures.swap_remove(0));
                }
            }
        }
        self.progress.done_bytes += u64::from(place.length_bytes);
        self.watch.on_progress(self.progress);
        Ok(())
    }

    fn pages(
        &mut self,
        needs: &Needs,
        (bytes, index): (&[u8], &ChunkIndex),
    ) -> Result<(), ImageError> {
        let mut blocks = Vec::new();
        for same in needs.chunk_by(|one, next| one.0 == next.0) {
            let page = same[0].0;
            blocks.clear();
            blocks.extend(same.iter().map(|(_, block)| *block));
            let contents = index.page(bytes, page.index()).expect("checked with the map");
            self.target.place(page, &blocks, contents)?;
            self.done.pages_placed += blocks.len() as u64;
        }
        Ok(())
    }

    fn lose(&mut self, chunk: ChunkNumber, needs: &Needs, error: ImageError) {
        self.done.chunks_damaged += u64::from(self.damaged.insert(chunk));
        let blocks = self.image.name_blocks(needs);
        self.target.lose(DamagedChunk { chunk, error, blocks }, needs);
    }
}

/// Whether reading again cannot help.
pub(crate) fn is_lasting(kind: ImageErrorKind) -> bool {
    use ImageErrorKind::{Damaged, Newer, NotFound};
    matches!(kind, Damaged | Newer | NotFound)
}

impl OpenImage {
    /// Joins blocks into runs with their volumes' names.
    fn name_blocks(&self, needs: &Needs) -> Vec<BlockRun> {
        let mut places: Vec<BlockPlace> = needs.iter().map(|(_, place)| *place).collect();
        places.sort_unstable();
        let mut runs: Vec<BlockRun> = Vec::new();
        for run in
            places.chunk_by(|one, next| one.volume == next.volume && one.block + 1 == next.block)
        {
            if runs.len() == RUNS_NAMED_MAX {
                break;
            }
            runs.push(BlockRun {
                volume: self.volumes()[run[0].volume as usize].name.clone(),
                first_block: run[0].block,
                block_count: run.len() as u64,
            });
        }
        runs
    }
}
