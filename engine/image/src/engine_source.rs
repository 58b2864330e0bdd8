//! Adapter that presents an engine's volumes as the source of a save.

use std::collections::HashSet;
use std::sync::Arc;

use block_device::BlockDevice;
use volumes::{BlockView, StoredBytes, Volume};

use crate::format::part::LEAF_BLOCKS;
use crate::names::{ChunkNumber, ImageId};
use crate::open_image::OpenImage;
use crate::source::{LeafSource, SourceVolume};
use crate::volume_record::{ImageVolume, ImageVolumeKind};

/// A volume to be saved.
#[derive(Clone, Debug)]
pub struct CopiedVolume {
    /// Record for the image, taken from the live volume, not the copy.
    pub record: ImageVolume,
    /// Immutable copy of the contents at the instant of the image. A snapshot is its own copy.
    pub copy: Arc<Volume>,
}

/// Volumes of one engine, copied at one instant.
#[derive(Debug)]
pub struct EngineSource {
    volumes: Vec<CopiedVolume>,
    fetched_from: Option<ImageId>,
    fetched_image: Option<Arc<OpenImage>>,
    damaged_there: HashSet<ChunkNumber>,
}

impl ImageVolume {
    /// Creates the record of a volume or snapshot.
    pub fn of(volume: &Volume) -> Self {
        let geometry = volume.geometry();
        Self {
            name: volume.name(),
            id: volume.id(),
            origin: volume.origin_id().unwrap_or(0),
            created_seconds: volume.created_unix_seconds(),
            size_bytes: geometry.size_bytes,
            sector: geometry.sector,
            reduction: volume.reduction(),
            durability: volume.durability(),
            capacity: volume.capacity_class(),
            kind: match volume.is_snapshot() {
                true => ImageVolumeKind::Snapshot,
                false => ImageVolumeKind::Volume,
            },
            mirror: volume.mirror(),
        }
    }
}

impl EngineSource {
    /// Creates a source. `absent_image` is the result of [`volumes::Engine::absent_image`], and
    /// `fetched_image` that image, if open.
    pub fn new(
        volumes: Vec<CopiedVolume>,
        absent_image: Option<u64>,
        fetched_image: Option<Arc<OpenImage>>,
    ) -> Self {
        let fetched_from = absent_image.and_then(ImageId::from_word);
        let damaged_there = fetched_image.as_ref().map(|image| image.damaged_chunks());
        Self {
            volumes,
            fetched_from,
            fetched_image,
            damaged_there: damaged_there.unwrap_or_default(),
        }
    }

    fn copy(&self, volume: usize) -> &Volume {
        &self.volumes[volume].copy
    }
}

impl LeafSource for EngineSource {
    fn volumes(&self) -> Vec<SourceVolume> {
        let source = |volume: &CopiedVolume| SourceVolume {
            volume: volume.record.clone(),
            base: volume.copy.map().image_base(),
        };
        self.volumes.iter().map(source).collect()
    }

    fn is_whole(&self) -> bool {
        !self.volumes.iter().any(|volume| volume.copy.map().is_gone())
    }

    fn fetched_from(&self) -> Option<ImageId> {
        self.fetched_from
    }

    fn fetched_image(&self) -> Option<&OpenImage> {
        self.fetched_image.as_deref()
    }

    fn is_damaged_there(&self, chunk: ChunkNumber) -> bool {
        self.damaged_there.contains(&chunk)
    }

    fn content_bytes(&self) -> u64 {
        self.volumes.iter().map(|volume| volume.copy.written_bytes()).sum()
    }

    fn next_leaf(&self, volume: usize, from: u64) -> Option<u64> {
        self.copy(volume).map().next_leaf(from)
    }

    fn states(&self, volume: usize, leaf: u64, into: &mut [BlockView; LEAF_BLOCKS]) {
        self.copy(volume).map().view_leaf(leaf, into);
    }

    fn read(
        &self,
        volume: usize,
        leaf: u64,
        wanted: &[u16],
        give: &mut dyn FnMut(u16, StoredBytes<'_>),
    ) {
        let copy = self.copy(volume);
        let damaged = copy.map().show_leaf(leaf, wanted, give);
        if !damaged.is_empty() {
            let first = leaf * LEAF_BLOCKS as u64;
            damaged.iter().for_each(|&place| copy.mend_block(first + u64::from(place)));
            let _lost = copy.map().show_leaf(leaf, &damaged, give);
        }
    }
}
