//! Saving of volumes as a new image.

use std::num::NonZeroU64;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

use volumes::SetId;

use crate::bases::Bases;
use crate::catalog::Catalog;
use crate::error::{ImageError, ImageErrorKind};
use crate::format::manifest::{
    JournalPosition, LABEL_BYTES_MAX, Manifest, ManifestKind, PackRecord, PartRecord,
};
use crate::format::part::{BlockRef, LEAF_BLOCKS, Part, part_of, put_leaf};
use crate::leaf_saver::{LeafPlace, LeafSaver};
use crate::names::{ImageId, PackName};
use crate::pipeline::{Pipeline, Writing};
use crate::saved::Saved;
use crate::source::{LeafSource, SourceVolume};
use crate::store::ImageStore;
use crate::watch::{Pace, Progress, Watch, check_cancelled};

const ATTEMPT: &str = "save an image";

/// Parameters of an image, set by the owner of the volumes.
#[derive(Clone, Debug)]
pub struct SaveOptions {
    /// Durable set that connects region, journal and images.
    pub set_id: SetId,
    /// Seconds since 1970.
    pub created_seconds: u64,
    pub journal: JournalPosition,
    /// Label of at most 63 bytes. A labelled image is kept until it is deleted explicitly.
    pub label: String,
    /// Limit on the write rate, in bytes per second.
    pub bytes_a_second_max: Option<NonZeroU64>,
}

/// Inputs of a save.
pub(crate) struct Save<'a> {
    pub(crate) store: &'a dyn ImageStore,
    pub(crate) source: &'a dyn LeafSource,
    pub(crate) options: &'a SaveOptions,
    pub(crate) watch: &'a dyn Watch,
    pub(crate) id: ImageId,
    /// The newest image, whose chunks need not be written again.
    pub(crate) head: Option<ImageId>,
    pub(crate) next_chunk: u64,
    pub(crate) first_pack: PackName,
}

/// An image with durable packs, whose manifest is still in memory.
pub(crate) struct Prepared {
    pub(crate) manifest: Manifest,
    saved: Saved,
    begun: Instant,
}

impl Prepared {
    pub(crate) fn saved(self, manifest_bytes: usize) -> Saved {
        let bytes_written = self.saved.bytes_written + manifest_bytes as u64;
        Saved { bytes_written, took: self.begun.elapsed(), ..self.saved }
    }
}

impl Save<'_> {
    /// Writes all packs. Sends the name of each pack when it is begun.
    pub(crate) fn prepare(&self, begun_packs: Sender<PackName>) -> Result<Prepared, ImageError> {
        let begun = Instant::now();
        let volumes = self.source.volumes();
        self.check(&volumes)?;
        let mut catalog = Catalog::of(self.store.packs()?);
        let bases = self.load_bases(&volumes, &mut catalog);
        let (parts, next_chunk, saved) = thread::scope(|scope| {
            let pace = Pace::new(self.options.bytes_a_second_max);
            let (store, watch) = (self.store, self.watch);
            let writing = Writing { store, watch, pace, begun: begun_packs };
            let pipeline = Pipeline::start(scope, writing, self.first_pack);
            let volume_count = volumes.len() as u64;
            let saved = Saved { volume_count, ..Saved::nothing(self.id) };
            let catalog = &mut catalog;
            let mut leaves = LeafSaver::new(self.source, catalog, pipeline, self.next_chunk, saved);
            let parts = self.walk(&volumes, &bases, &mut leaves);
            // Checked before returning an error of the walk, which may be caused by reading too
            // late.
            self.check_whole()?;
            let parts = parts?;
            leaves.pipeline.finish()?;
            Ok::<_, ImageError>((parts, leaves.next_chunk, leaves.saved))
        })?;
        let (packs, chunks) = catalog.tables();
        let is_new = |name: PackName| {
            name.writer == self.first_pack.writer && name.index >= self.first_pack.index
        };
        let is_missing = |pack: &&PackRecord| !catalog.has_pack(pack) && !is_new(pack.name);
        let packs_missing = packs.iter().filter(is_missing).map(|pack| pack.name).collect();
        let manifest = Manifest {
            kind: ManifestKind::Image,
            id: self.id,
            set_id: self.options.set_id,
            created_seconds: self.options.created_seconds,
            journal: self.options.journal,
            next_chunk,
            label: self.options.label.clone(),
            lost_blocks: saved.lost_blocks,
            volumes: volumes.into_iter().map(|source| source.volume).collect(),
            packs,
            chunks,
            parts,
        };
        let saved = Saved { bases_missing: bases.missing, packs_missing, ..saved };
        Ok(Prepared { manifest, saved, begun })
    }

    fn check(&self, volumes: &[SourceVolume]) -> Result<(), ImageError> {
        let invalid =
            |why: String| ImageError::new(ImageErrorKind::Invalid, ATTEMPT).with_source(why);
        if self.options.label.len() > LABEL_BYTES_MAX {
            return Err(invalid(format!("the label is longer than {LABEL_BYTES_MAX} bytes")));
        }
        match volumes.iter().find(|source| !source.volume.is_sound()) {
            Some(source) => {
                Err(invalid(format!("invalid name, id or size of volume {:?}", source.volume.name)))
            }
            None => Ok(()),
        }
    }

    /// Fails if the source gave up its copy. Nothing read afterwards may become part of an image.
    fn check_whole(&self) -> Result<(), ImageError> {
        match self.source.is_whole() {
            true => Ok(()),
            false => Err(ImageError::new(ImageErrorKind::GaveWay, ATTEMPT)),
        }
    }

    fn load_bases(&self, volumes: &[SourceVolume], catalog: &mut Catalog) -> Bases {
        let mut bases = Bases::default();
        let named = volumes.iter().filter_map(|source| ImageId::from_word(source.base?.image));
        for id in named.chain(self.source.fetched_from()) {
            bases.load(self.store, catalog, id, self.options.set_id);
        }
        if let Some(head) = self.head {
            bases.load_chunks(self.store, catalog, head);
        }
        if let Some(id) = self.source.fetched_from().filter(|id| !bases.has(*id)) {
            self.find_chunks_of(id, &bases, catalog);
        }
        bases
    }

    /// Locates the chunks of an image whose manifest is gone from the store, from its open copy or
    /// from other images that refer to them.
    fn find_chunks_of(&self, id: ImageId, bases: &Bases, catalog: &mut Catalog) {
        if let Some(image) = self.source.fetched_image().filter(|image| image.id() == id) {
            catalog.add_image(image.manifest());
            return;
        }
        for (number, _) in self.store.images().unwrap_or_default() {
            bases.load_chunks(self.store, catalog, ImageId::new(id.salt(), number));
        }
    }

    fn walk(
        &self,
        volumes: &[SourceVolume],
        bases: &Bases,
        leaves: &mut LeafSaver<'_, '_>,
    ) -> Result<Vec<PartRecord>, ImageError> {
        let mut walk = Walk { save: self, bases, parts: Vec::new(), progress: self.progress() };
        for (index, source) in volumes.iter().enumerate() {
            walk.volume(index, source, leaves)?;
        }
        Ok(walk.parts)
    }

    fn progress(&self) -> Progress {
        Progress { done_bytes: 0, total_bytes: self.source.content_bytes() }
    }
}

/// Traversal of all leaves.
struct Walk<'a> {
    save: &'a Save<'a>,
    bases: &'a Bases,
    parts: Vec<PartRecord>,
    progress: Progress,
}

impl Walk<'_> {
    fn volume(
        &mut self,
        index: usize,
        source: &SourceVolume,
        leaves: &mut LeafSaver<'_, '_>,
    ) -> Result<(), ImageError> {
        let block_count = source.volume.size_bytes / 4096;
        let leaf_count = source.volume.leaf_count();
        let next_leaf =
            |from| self.save.source.next_leaf(index, from).filter(|leaf| *leaf < leaf_count);
        let mut next = next_leaf(0);
        while let Some(first) = next {
            let part = part_of(first);
            let base = self.bases.part(self.save.store, leaves.catalog, source.base, part);
            let mut bytes = Vec::new();
            while let Some(leaf) = next.filter(|leaf| part_of(*leaf) == part) {
                check_cancelled(self.save.watch, ATTEMPT)?;
                self.save.check_whole()?;
                let blocks_left = block_count - leaf * LEAF_BLOCKS as u64;
                let block_count =
                    usize::try_from(blocks_left).map_or(LEAF_BLOCKS, |left| left.min(LEAF_BLOCKS));
                let place = LeafPlace { volume: index, leaf, block_count };
                self.progress.done_bytes += save_leaf(place, &base, &mut bytes, leaves)?;
                self.save.watch.on_progress(self.progress);
                next = next_leaf(leaf + 1);
            }
            if !bytes.is_empty() {
                let chunk = leaves.save_part(&bytes)?;
                let short = |number: u64| u32::try_from(number).expect("volumes are bounded");
                let (volume, part) = (short(index as u64), short(part));
                self.parts.push(PartRecord { volume, part, chunk });
            }
        }
        Ok(())
    }
}

/// Saves a leaf and adds it to its map part. Returns the uncompressed size of its pages.
fn save_leaf(
    place: LeafPlace,
    base: &Part,
    part: &mut Vec<u8>,
    leaves: &mut LeafSaver<'_, '_>,
) -> Result<u64, ImageError> {
    let refs = leaves.save(place, &base.refs(place.leaf))?;
    put_leaf(part, place.leaf, &refs);
    let pages = refs.iter().filter(|block| matches!(block, BlockRef::Page(_))).count();
    Ok(pages as u64 * 4096)
}
