//! Restoring an engine's volumes from an image: maps immediately, pages on access or in the
//! background.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use block_device::DeviceErrorKind;
use codec::{BLOCK_BYTES, Block};
use volumes::{
    FetchedPages, FilledBlock, Found, ImageBase, PageSource, SourceError, SourceErrorKind,
    StoredBytes, Volume, VolumeError, VolumeErrorKind, VolumeName, VolumeSpec,
};

use crate::error::{ImageError, ImageErrorKind};
use crate::format::chunk::VerifiedChunk;
use crate::format::part::{BlockRef, LeafRefs};
use crate::names::{ChunkNumber, PageNumber};
use crate::open_image::{OpenImage, is_of_object};
use crate::restore::{BlockPlace, DamagedChunk, RestoreTarget};
use crate::volume_record::ImageVolume;

impl ImageVolume {
    /// Returns a specification to recreate the volume.
    pub fn spec(&self) -> Result<VolumeSpec, VolumeError> {
        Ok(self.spec_as(self.name.parse()?))
    }

    /// Returns a specification to recreate the volume or snapshot as a volume under another name.
    pub fn spec_as(&self, name: VolumeName) -> VolumeSpec {
        VolumeSpec {
            name,
            size_bytes: self.size_bytes,
            sector: self.sector,
            reduction: self.reduction,
            durability: self.durability,
            capacity: self.capacity,
            mirror: self.mirror,
        }
    }
}

impl OpenImage {
    /// Fills the map of an empty volume from volume `index` of the image. All pages are absent
    /// afterwards, and the image becomes the volume's base. Returns the leaves in the image. Other
    /// leaves of the volume are unchanged.
    pub fn fill(&self, index: usize, volume: &Volume) -> Result<HashSet<u64>, ImageError> {
        let record = &self.volumes()[index];
        let (mut result, mut leaves) = (Ok(()), HashSet::new());
        self.leaves(index, &mut |leaf, refs| {
            leaves.insert(leaf);
            result = volume.map().fill_leaf(leaf, &filled(refs));
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result.map_err(|error| {
            let kind = match error.kind {
                VolumeErrorKind::NoSpace => ImageErrorKind::PoolFull,
                _ => ImageErrorKind::Invalid,
            };
            ImageError::new(kind, format!("restore volume {}", record.name)).with_source(error)
        })?;
        let base = ImageBase { image: self.id().word(), volume_id: record.id };
        volume.map().set_image_base(Some(base));
        Ok(leaves)
    }
}

fn filled(refs: &LeafRefs) -> Vec<FilledBlock> {
    let filled = |block: &BlockRef| match *block {
        BlockRef::Hole => FilledBlock::Hole,
        BlockRef::Fill(pattern) => FilledBlock::Fill(pattern),
        BlockRef::Page(page) => FilledBlock::Absent(page.get()),
        BlockRef::Damaged => FilledBlock::Damaged,
    };
    refs.iter().map(filled).collect()
}

impl PageSource for OpenImage {
    fn fetch(&self, number: u64) -> Result<Arc<dyn FetchedPages>, SourceError> {
        let page = PageNumber::new(number).expect("absent entries have 48 bits");
        let chunk = self.fetch_chunk(page.chunk()).map_err(source_error)?;
        Ok(Arc::new(FetchedChunk { number: page.chunk(), chunk }))
    }
}

/// A verified chunk.
#[derive(Debug)]
struct FetchedChunk {
    number: ChunkNumber,
    chunk: Arc<VerifiedChunk>,
}

impl FetchedPages for FetchedChunk {
    fn read(&self, number: u64, into: &mut Block) -> Result<Found, SourceError> {
        let page = PageNumber::new(number).expect("absent entries have 48 bits");
        if page.chunk() != self.number {
            return Ok(Found::Elsewhere);
        }
        let read = self.chunk.read_page(page, into);
        read.map(|()| Found::Here).map_err(source_error)
    }
}

fn source_error(error: ImageError) -> SourceError {
    let kind = match is_of_object(error.kind) {
        true => SourceErrorKind::Gone,
        false => SourceErrorKind::Unreachable,
    };
    SourceError { kind, source: Some(error.into()) }
}

/// Volumes that receive contents of an image while they are served.
#[derive(Debug)]
pub struct EngineTarget<'a> {
    /// Volumes by index in the image. `None` if not restored.
    volumes: &'a [Option<Arc<Volume>>],
    /// Chunks that could not be read, for the log.
    left: Vec<DamagedChunk>,
}

/// Maximum number of such chunks that are described.
const CHUNKS_DESCRIBED_MAX: usize = 100;

impl<'a> EngineTarget<'a> {
    /// Creates a target for `volumes`, by index in the image.
    pub fn new(volumes: &'a [Option<Arc<Volume>>]) -> Self {
        Self { volumes, left: Vec::new() }
    }

    /// Takes the chunks that could not be read so far, at most 100.
    pub fn take_left(&mut self) -> Vec<DamagedChunk> {
        std::mem::take(&mut self.left)
    }

    fn volume(&self, place: BlockPlace) -> Option<&Volume> {
        self.volumes.get(place.volume as usize)?.as_deref()
    }
}

impl RestoreTarget for EngineTarget<'_> {
    fn is_wanted(&mut self, block: BlockPlace, page: PageNumber) -> bool {
        let absent = self.volume(block).and_then(|volume| volume.map().absent_number(block.block));
        absent == Some(page.get())
    }

    fn place(
        &mut self,
        page: PageNumber,
        blocks: &[BlockPlace],
        contents: StoredBytes<'_>,
    ) -> Result<(), ImageError> {
        let mut decoded = [0; BLOCK_BYTES];
        let contents: &Block = match contents {
            StoredBytes::Raw(bytes) => bytes,
            StoredBytes::Encoded(bytes) => {
                // The digest is correct, so the page was already damaged in memory when it was
                // saved.
                if codec::decode(bytes, &mut decoded).is_err() {
                    return Ok(());
                }
                &decoded
            }
        };
        for block in blocks {
            let Some(volume) = self.volume(*block) else { continue };
            match volume.bring_in(block.block, page.get(), contents) {
                Err(error) if error.kind == DeviceErrorKind::NoSpace => {
                    let attempt = format!("restore volume {}", volume.name());
                    return Err(
                        ImageError::new(ImageErrorKind::PoolFull, attempt).with_source(error)
                    );
                }
                // Volumes deleted meanwhile are ignored.
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn leave(&mut self, chunk: DamagedChunk) {
        if self.left.len() < CHUNKS_DESCRIBED_MAX {
            self.left.push(chunk);
        }
    }
}
