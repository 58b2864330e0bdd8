//! Saving of one leaf: decides which blocks refer to existing chunks and which are written.

use std::collections::HashMap;

use volumes::{BlockView, StoredBytes};

use crate::catalog::Catalog;
use crate::error::{ImageError, ImageErrorKind};
use crate::format::chunk::{Built, ChunkBuilder, Digest};
use crate::format::part::{BlockRef, LEAF_BLOCKS, LeafRefs};
use crate::names::{ChunkNumber, PackPlace, PageNumber};
use crate::pipeline::Pipeline;
use crate::saved::Saved;
use crate::shared_pages::SharedPages;
use crate::source::LeafSource;

const ATTEMPT: &str = "save an image";

/// Limit on the chunks that a leaf refers to. A changed leaf beyond it is rewritten whole, so that
/// restoring it needs few reads. The limit is lower by up to 7 for some leaves, so that they reach
/// it in different saves.
const LEAF_CHUNKS_MAX: usize = 16;

/// Position of a leaf: volume and leaf number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafPlace {
    pub(crate) volume: usize,
    pub(crate) leaf: u64,
    /// Number of blocks in it, fewer in the volume's last leaf.
    pub(crate) block_count: usize,
}

/// State of a save across leaves.
#[derive(Debug)]
pub(crate) struct LeafSaver<'a, 'scope> {
    pub(crate) source: &'a dyn LeafSource,
    pub(crate) catalog: &'a mut Catalog,
    pub(crate) pipeline: Pipeline<'scope>,
    pub(crate) next_chunk: u64,
    pub(crate) saved: Saved,
    builder: ChunkBuilder,
    shared_pages: SharedPages,
}

/// Location of a written block's contents.
#[derive(Clone, Copy, Debug)]
enum Written {
    /// Index in the chunk being built.
    Here(u16),
    /// A page written earlier.
    Before(PageNumber),
}

impl<'a, 'scope> LeafSaver<'a, 'scope> {
    pub(crate) fn new(
        source: &'a dyn LeafSource,
        catalog: &'a mut Catalog,
        pipeline: Pipeline<'scope>,
        next_chunk: u64,
        saved: Saved,
    ) -> Self {
        Self {
            source,
            catalog,
            pipeline,
            next_chunk,
            saved,
            builder: ChunkBuilder::new(),
            shared_pages: SharedPages::new(),
        }
    }

    /// Writes new contents of the leaf. Returns the resulting block references.
    pub(crate) fn save(
        &mut self,
        place: LeafPlace,
        base: &LeafRefs,
    ) -> Result<LeafRefs, ImageError> {
        let mut states = [BlockView::Hole; LEAF_BLOCKS];
        self.source.states(place.volume, place.leaf, &mut states);
        states[place.block_count..].fill(BlockView::Hole);
        let mut refs = self.resolve(&states, base)?;
        let mut wanted = wanted(&states, &refs);
        if !wanted.is_empty() && self.is_scattered(place.leaf, &states, &refs) {
            take_whole(&states, &mut refs);
            wanted = self::wanted(&states, &refs);
        }
        self.saved.pages_reused +=
            refs.iter().filter(|block| matches!(block, BlockRef::Page(_))).count() as u64;
        if !wanted.is_empty() {
            self.write(place, &states, &wanted, &mut refs)?;
        }
        self.note_uses(&refs);
        self.note_lost(&refs);
        Ok(refs)
    }

    /// Writes a part of a map. Returns its chunk.
    pub(crate) fn save_part(&mut self, part: &[u8]) -> Result<ChunkNumber, ImageError> {
        let (buffer, at) = self.pipeline.room()?;
        let built = self.builder.build_map(buffer, part);
        let number = self.settle(&built, at)?;
        self.catalog.note_uses(number, 1);
        Ok(number)
    }

    /// Returns references for blocks that need not be written. All others are [`BlockRef::Damaged`]
    /// for now.
    fn resolve(
        &self,
        states: &[BlockView; LEAF_BLOCKS],
        base: &LeafRefs,
    ) -> Result<LeafRefs, ImageError> {
        let mut refs = [BlockRef::Hole; LEAF_BLOCKS];
        for ((state, base), slot) in states.iter().zip(base).zip(&mut refs) {
            *slot = match (*state, *base) {
                (BlockView::Hole, _) => BlockRef::Hole,
                (BlockView::Fill(pattern), _) => BlockRef::Fill(pattern),
                (BlockView::Absent(number), _) => match PageNumber::new(number) {
                    Some(page) if self.catalog.has_page(page) => BlockRef::Page(page),
                    Some(_) => {
                        let why = "blocks still have to be fetched from an image that is missing";
                        return Err(
                            ImageError::new(ImageErrorKind::InUse, ATTEMPT).with_source(why)
                        );
                    }
                    None => BlockRef::Damaged,
                },
                (BlockView::Page { is_unsaved: false, .. }, BlockRef::Page(page))
                    if !self.catalog.is_to_be_left(page) =>
                {
                    BlockRef::Page(page)
                }
                (BlockView::Page { .. } | BlockView::Damaged, _) => BlockRef::Damaged,
            };
        }
        Ok(refs)
    }

    /// Returns whether the unchanged blocks of the leaf are in too many chunks.
    fn is_scattered(&self, leaf: u64, states: &[BlockView; LEAF_BLOCKS], refs: &LeafRefs) -> bool {
        let own = states.iter().zip(refs).filter_map(|(state, block)| match block {
            BlockRef::Page(page) if is_alone(*state) => Some(page.chunk()),
            _ => None,
        });
        let mut chunks: Vec<ChunkNumber> = own.collect();
        chunks.sort_unstable();
        chunks.dedup();
        let sooner = usize::try_from(leaf % 8).expect("less than 8");
        chunks.len() + 1 > LEAF_CHUNKS_MAX - sooner
    }

    fn write(
        &mut self,
        place: LeafPlace,
        states: &[BlockView; LEAF_BLOCKS],
        wanted: &[u16],
        refs: &mut LeafRefs,
    ) -> Result<(), ImageError> {
        let (buffer, at) = self.pipeline.room()?;
        let (builder, shared_pages) = (&mut self.builder, &self.shared_pages);
        let mut written = Vec::with_capacity(wanted.len());
        let mut shared_here: HashMap<Digest, u16> = HashMap::new();
        builder.begin(buffer);
        self.source.read(place.volume, place.leaf, wanted, &mut |block, page| {
            let digest = is_shared(states[usize::from(block)]).then(|| digest_of(page));
            let before = digest.as_ref().and_then(|digest| shared_pages.get(digest));
            let here = digest.as_ref().and_then(|digest| shared_here.get(digest));
            let place = match (before, here) {
                (Some(number), _) => Written::Before(number),
                (None, Some(&index)) => Written::Here(index),
                (None, None) => Written::Here(builder.add(buffer, page)),
            };
            if let (Some(digest), Written::Here(index)) = (digest, place) {
                shared_here.insert(digest, index);
            }
            written.push((block, place));
        });
        if builder.page_count() == 0 {
            self.pipeline.take_back(at);
            place_written(refs, &written, None);
            return Ok(());
        }
        let built = builder.finish(buffer);
        let number = self.settle(&built, at)?;
        for (digest, index) in shared_here {
            self.shared_pages.insert(digest, number.page(index));
        }
        place_written(refs, &written, Some(number));
        Ok(())
    }

    /// Assigns a number to a newly built chunk. If the store already has it, discards it.
    fn settle(&mut self, built: &Built, at: PackPlace) -> Result<ChunkNumber, ImageError> {
        if let Some(number) = self.catalog.number_of(&built.digest) {
            self.pipeline.take_back(at);
            self.saved.chunks_reused += 1;
            self.saved.pages_reused += u64::from(built.page_count);
            return Ok(number);
        }
        if self.next_chunk >= ChunkNumber::END {
            return Err(ImageError::new(ImageErrorKind::Invalid, ATTEMPT)
                .with_source("the store has used all chunk numbers; use a new store"));
        }
        let number = ChunkNumber(self.next_chunk);
        self.next_chunk += 1;
        self.catalog.add_built(number, built, at);
        self.saved.chunks_new += 1;
        self.saved.pages_written += u64::from(built.page_count);
        self.saved.bytes_written += built.length_bytes as u64;
        Ok(number)
    }

    /// Counts blocks whose contents are lost, or damaged in the image from which they are fetched.
    fn note_lost(&mut self, refs: &LeafRefs) {
        let is_lost = |block: &&BlockRef| match block {
            BlockRef::Damaged => true,
            BlockRef::Page(page) => self.source.is_damaged_there(page.chunk()),
            BlockRef::Hole | BlockRef::Fill(_) => false,
        };
        self.saved.lost_blocks += refs.iter().filter(is_lost).count() as u64;
    }

    fn note_uses(&mut self, refs: &LeafRefs) {
        let chunk_of = |block: &BlockRef| match block {
            BlockRef::Page(page) => Some(page.chunk()),
            _ => None,
        };
        for run in refs.chunk_by(|one, next| chunk_of(one) == chunk_of(next)) {
            if let Some(chunk) = chunk_of(&run[0]) {
                self.catalog.note_uses(chunk, run.len() as u64);
            }
        }
    }
}

/// Returns the blocks whose contents must be written.
fn wanted(states: &[BlockView; LEAF_BLOCKS], refs: &LeafRefs) -> Vec<u16> {
    let is_wanted = |(block, (state, found)): (u16, (&BlockView, &BlockRef))| {
        let is_page = matches!(state, BlockView::Page { .. });
        (is_page && *found == BlockRef::Damaged).then_some(block)
    };
    (0..).zip(states.iter().zip(refs)).filter_map(is_wanted).collect()
}

/// Drops references of blocks whose page is not shared.
fn take_whole(states: &[BlockView; LEAF_BLOCKS], refs: &mut LeafRefs) {
    for (state, block) in states.iter().zip(refs) {
        if is_alone(*state) {
            *block = BlockRef::Damaged;
        }
    }
}

fn place_written(refs: &mut LeafRefs, written: &[(u16, Written)], chunk: Option<ChunkNumber>) {
    for (block, place) in written {
        let page = match place {
            Written::Before(page) => *page,
            Written::Here(index) => chunk.expect("the page was added to it").page(*index),
        };
        refs[usize::from(*block)] = BlockRef::Page(page);
    }
}

fn is_alone(state: BlockView) -> bool {
    matches!(state, BlockView::Page { is_shared: false, .. })
}

fn is_shared(state: BlockView) -> bool {
    matches!(state, BlockView::Page { is_shared: true, .. })
}

fn digest_of(page: StoredBytes<'_>) -> Digest {
    *blake3::hash(page.as_stored()).as_bytes()
}
