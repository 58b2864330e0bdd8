//! Base images of a save: their maps describe the unchanged blocks.

use std::collections::HashMap;

use volumes::{ImageBase, SetId};

use crate::catalog::Catalog;
use crate::chunk_reader::read_chunk;
use crate::format::manifest::{Manifest, ManifestKind};
use crate::format::part::Part;
use crate::manifests::read_manifest;
use crate::names::{ChunkNumber, ImageId};
use crate::store::ImageStore;

/// Base images by id. Their chunks are in the catalog.
#[derive(Debug, Default)]
pub(crate) struct Bases {
    images: HashMap<ImageId, Manifest>,
    /// Images that could not be used.
    pub(crate) missing: Vec<ImageId>,
}

impl Bases {
    /// Loads an image once. If it is missing, unreadable or of another set, it is recorded as
    /// missing, and its blocks count as new.
    pub(crate) fn load(
        &mut self,
        store: &dyn ImageStore,
        catalog: &mut Catalog,
        id: ImageId,
        set_id: SetId,
    ) {
        if self.has(id) || self.missing.contains(&id) {
            return;
        }
        match read_manifest(store, id.number()) {
            Ok(mut manifest) if is_usable(&manifest, id, set_id) => {
                catalog.add_image(&manifest);
                // The catalog has them.
                manifest.chunks = Vec::new();
                self.images.insert(id, manifest);
            }
            _ => self.missing.push(id),
        }
    }

    /// Adds the chunks of an image of any set, so that they are not written again. If it cannot be
    /// read, the only cost is space.
    pub(crate) fn load_chunks(&self, store: &dyn ImageStore, catalog: &mut Catalog, id: ImageId) {
        if !self.has(id)
            && let Ok(manifest) = read_manifest(store, id.number())
            && manifest.id == id
        {
            catalog.add_image(&manifest);
        }
    }

    pub(crate) fn has(&self, id: ImageId) -> bool {
        self.images.contains_key(&id)
    }

    /// Returns a part of the volume's map in its base image. Returns an empty part if there is none
    /// or it is unreadable. The contents in memory are then written again, which heals the image.
    pub(crate) fn part(
        &self,
        store: &dyn ImageStore,
        catalog: &Catalog,
        base: Option<ImageBase>,
        part: u64,
    ) -> Part {
        let place = base.and_then(|base| catalog.place(self.find_part(base, part)?));
        let Some(Ok(chunk)) = place.map(|place| read_chunk(store, &place)) else {
            return Part::default();
        };
        Part::read(part, chunk.map_part(), &|page| catalog.has_page(page)).unwrap_or_default()
    }

    fn find_part(&self, base: ImageBase, part: u64) -> Option<ChunkNumber> {
        let manifest = self.images.get(&ImageId::from_word(base.image)?)?;
        let volume = manifest.volumes.iter().position(|known| known.id == base.volume_id)?;
        let key = (u32::try_from(volume).ok()?, u32::try_from(part).ok()?);
        let parts = &manifest.parts;
        let found = parts.binary_search_by_key(&key, |part| (part.volume, part.part)).ok()?;
        Some(parts[found].chunk)
    }
}

fn is_usable(manifest: &Manifest, id: ImageId, set_id: SetId) -> bool {
    manifest.kind == ManifestKind::Image && manifest.id == id && manifest.set_id == set_id
}
