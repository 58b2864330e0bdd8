//! Read access to an image: volumes, block references and pages.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use codec::Block;

use crate::catalog::is_stored;
use crate::chunk_cache::ChunkCache;
use crate::chunk_reader::read_chunk;
use crate::elsewhere::Elsewhere;
use crate::error::{Disbelief, ImageError, ImageErrorKind};
use crate::format::chunk::{ChunkKind, ChunkPlace, VerifiedChunk};
use crate::format::manifest::{ChunkRecord, Manifest, ManifestKind, PackRecord, PartRecord};
use crate::format::part::{BlockRef, LEAF_BLOCKS, LeafRefs, Part, part_of};
use crate::listing::ImageSummary;
use crate::manifests::{ManifestState, read_manifest, read_state};
use crate::names::{ChunkNumber, ImageId, PackName, PageNumber};
use crate::store::ImageStore;
use crate::volume_record::ImageVolume;

/// An open image, whose manifest is in memory. Any thread may fetch pages. Each page is verified.
#[derive(Debug)]
pub struct OpenImage {
    store: Arc<dyn ImageStore>,
    manifest: Manifest,
    cache: ChunkCache,
    elsewhere: Elsewhere,
}

/// Consecutive blocks of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// Name of the volume in the image.
    pub volume: String,
    pub first_block: u64,
    pub block_count: u64,
}

/// Maximum number of block runs that are reported for a damaged chunk.
pub(crate) const RUNS_NAMED_MAX: usize = 64;

/// Callback for each leaf of a map.
pub(crate) type VisitLeaf<'a> = &'a mut dyn FnMut(u64, &LeafRefs) -> ControlFlow<()>;

impl OpenImage {
    /// Opens image `number`.
    pub fn open(store: Arc<dyn ImageStore>, number: u32) -> Result<Self, ImageError> {
        let manifest = read_manifest(&*store, number)?;
        if manifest.kind != ManifestKind::Image {
            return Err(ImageError::new(ImageErrorKind::NotFound, format!("open image {number}")));
        }
        Ok(Self::of(store, manifest))
    }

    /// Opens the newest intact image, if any. Newer unreadable ones are reported to `skipped`.
    /// Fails if the store cannot list its images.
    pub fn open_newest(
        store: Arc<dyn ImageStore>,
        skipped: &mut dyn FnMut(u32, &ImageError),
    ) -> Result<Option<Self>, ImageError> {
        for (number, size_bytes) in store.images()?.into_iter().rev() {
            match read_state(&*store, number, size_bytes) {
                Ok(ManifestState::Whole(manifest)) if manifest.kind == ManifestKind::Image => {
                    return Ok(Some(Self::of(store, *manifest)));
                }
                Ok(ManifestState::Unreadable(error)) => skipped(number, &error),
                // An error means that the image was removed after the listing.
                Ok(ManifestState::Whole(_) | ManifestState::Unfinished) | Err(_) => {}
            }
        }
        Ok(None)
    }

    fn of(store: Arc<dyn ImageStore>, manifest: Manifest) -> Self {
        let (cache, elsewhere) = (ChunkCache::default(), Elsewhere::default());
        Self { store, manifest, cache, elsewhere }
    }

    pub fn id(&self) -> ImageId {
        self.manifest.id
    }

    pub fn summary(&self) -> ImageSummary {
        ImageSummary::of(&self.manifest)
    }

    pub fn volumes(&self) -> &[ImageVolume] {
        &self.manifest.volumes
    }

    /// Visits a volume's block references, leaf by leaf in ascending order. Leaves of holes are
    /// skipped. `visit` may stop early.
    pub fn leaves(&self, volume: usize, visit: VisitLeaf<'_>) -> Result<(), ImageError> {
        for record in self.parts_of(volume) {
            let part = self.read_part(record)?;
            for leaf in part.leaves() {
                if visit(leaf, &part.refs(leaf)).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns the reference of one block of a volume.
    pub fn block(&self, volume: usize, block: u64) -> Result<BlockRef, ImageError> {
        let leaf_blocks = LEAF_BLOCKS as u64;
        let leaf = block / leaf_blocks;
        let mut parts = self.parts_of(volume).iter();
        let Some(record) = parts.find(|record| u64::from(record.part) == part_of(leaf)) else {
            return Ok(BlockRef::Hole);
        };
        let place = usize::try_from(block % leaf_blocks).expect("a leaf is short");
        Ok(self.read_part(record)?.refs(leaf)[place])
    }

    /// Reads and verifies a page into `into`. The chunk stays in a small cache. A chunk that could
    /// not be read is not retried for a while: until then this fails immediately.
    pub fn fetch(&self, page: PageNumber, into: &mut Block) -> Result<(), ImageError> {
        self.fetch_chunk(page.chunk())?.read_page(page, into)
    }

    /// Returns a verified chunk of pages, cached if possible.
    pub(crate) fn fetch_chunk(
        &self,
        number: ChunkNumber,
    ) -> Result<Arc<VerifiedChunk>, ImageError> {
        let place = self.place(number, ChunkKind::Pages).ok_or_else(|| {
            let attempt = format!("find {number} in {}", self.id());
            Disbelief::Damaged("the image has no such chunk").error(attempt)
        })?;
        self.cache
            .get(number, || self.read(&place).or_else(|error| self.read_elsewhere(&place, error)))
    }

    /// Returns the chunks that were damaged at their last read.
    pub fn damaged_chunks(&self) -> HashSet<ChunkNumber> {
        self.cache.failed(ImageErrorKind::Damaged)
    }

    /// Forgets failed reads, so that the chunks are retried at once.
    pub fn forget_failures(&self) {
        self.cache.forget_failures();
    }

    /// Returns the pack of a page, and the error of the last attempt to read it, if it failed.
    pub fn whereabouts(&self, page: PageNumber) -> Option<(PackName, Option<String>)> {
        let pack = self.place_of(self.chunk(page.chunk())?).at.pack;
        Some((pack, self.cache.cause(page.chunk())))
    }

    /// Returns the first blocks that refer to a chunk. Searches all maps.
    pub(crate) fn blocks_of(&self, chunk: ChunkNumber) -> Result<Vec<BlockRun>, ImageError> {
        let mut runs = Vec::new();
        for (volume, record) in self.manifest.volumes.iter().enumerate() {
            self.leaves(volume, &mut |leaf, refs| {
                for (block, found) in (leaf * 512..).zip(refs) {
                    if matches!(found, BlockRef::Page(page) if page.chunk() == chunk) {
                        add_block(&mut runs, &record.name, block);
                    }
                }
                match runs.len() > RUNS_NAMED_MAX {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })?;
        }
        runs.truncate(RUNS_NAMED_MAX);
        Ok(runs)
    }

    /// Checks that the store has all packs of the image completely, except those in
    /// `known_missing`.
    pub fn check_packs(&self, known_missing: &[PackName]) -> Result<(), ImageError> {
        let stored = self.store.packs()?.into_iter().collect();
        let is_missing =
            |pack: &&PackRecord| !is_stored(&stored, pack) && !known_missing.contains(&pack.name);
        let Some(pack) = self.manifest.packs.iter().find(is_missing) else { return Ok(()) };
        let attempt = format!("find pack {} of {} whole", pack.name, self.id());
        Err(ImageError::new(ImageErrorKind::Damaged, attempt)
            .with_source("the store has lost a part of it since it was written"))
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(crate) fn store(&self) -> &dyn ImageStore {
        &*self.store
    }

    pub(crate) fn chunks(&self) -> &[ChunkRecord] {
        &self.manifest.chunks
    }

    pub(crate) fn chunk(&self, number: ChunkNumber) -> Option<&ChunkRecord> {
        self.manifest.chunk(number)
    }

    pub(crate) fn parts_of(&self, volume: usize) -> &[PartRecord] {
        let parts = &self.manifest.parts;
        let index = u32::try_from(volume).unwrap_or(u32::MAX);
        let first = parts.partition_point(|part| part.volume < index);
        let end = parts.partition_point(|part| part.volume <= index);
        &parts[first..end]
    }

    pub(crate) fn read_part(&self, record: &PartRecord) -> Result<Part, ImageError> {
        let place = self.place(record.chunk, ChunkKind::Map).expect("checked with the manifest");
        let chunk = self.read(&place)?;
        Part::read(u64::from(record.part), chunk.map_part(), &|page| self.manifest.has_page(page))
            .map_err(|disbelief| disbelief.error(place.attempt()))
    }

    pub(crate) fn place_of(&self, chunk: &ChunkRecord) -> ChunkPlace {
        self.manifest.place_of(chunk)
    }

    fn place(&self, number: ChunkNumber, kind: ChunkKind) -> Option<ChunkPlace> {
        let chunk = self.manifest.chunk(number).filter(|chunk| chunk.kind == kind)?;
        Some(self.place_of(chunk))
    }

    fn read(&self, place: &ChunkPlace) -> Result<VerifiedChunk, ImageError> {
        read_chunk(&*self.store, place)
    }

    /// Retries a chunk that could not be read: wrong bytes are read once more, then copies with the
    /// same digest in other images are tried.
    pub(crate) fn read_elsewhere(
        &self,
        place: &ChunkPlace,
        error: ImageError,
    ) -> Result<VerifiedChunk, ImageError> {
        if !is_of_object(error.kind) {
            return Err(error);
        }
        if error.kind == ImageErrorKind::Damaged
            && let Ok(chunk) = self.read(place)
        {
            return Ok(chunk);
        }
        let others = self.elsewhere.places(&*self.store, &self.manifest, place);
        others.iter().find_map(|other| self.read(other).ok()).ok_or(error)
    }

    /// Records that a chunk was read without the cache, or that this failed.
    pub(crate) fn note_chunk(&self, number: ChunkNumber, read: Result<(), &ImageError>) {
        self.cache.note(number, read);
    }
}

/// Returns whether the error concerns only the object, which is missing or damaged, and not the
/// store.
pub(crate) fn is_of_object(kind: ImageErrorKind) -> bool {
    use ImageErrorKind::{Damaged, Newer, NotFound};
    matches!(kind, Damaged | Newer | NotFound)
}

/// Adds a block to the last run, or as a new run.
pub(crate) fn add_block(runs: &mut Vec<BlockRun>, volume: &str, block: u64) {
    match runs.last_mut() {
        Some(run) if run.volume == volume && run.first_block + run.block_count == block => {
            run.block_count += 1;
        }
        _ => runs.push(BlockRun { volume: volume.to_owned(), first_block: block, block_count: 1 }),
    }
}
