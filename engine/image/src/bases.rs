//! The images that a save builds on: what their maps say of blocks that did not change.

use std::collections::HashMap;

use volumes::{ImageBase, SetId};

use crate::catalog::Catalog;
use crate::chunk_reader::read_chunk;
use crate::format::manifest::{Manifest, ManifestKind};
use crate::format::part::Part;
use crate::manifests::read_manifest;
use crate::names::{ChunkNumber, ImageId};
use crate::store::ImageStore;

/// Images by id, with their chunks in the catalog.
#[derive(Debug, Default)]
pub(crate) struct Bases {
    images: HashMap<ImageId, Manifest>,
    /// Those that could not be used.
    pub(crate) missing: Vec<ImageId>,
}

impl Bases {
    /// Loads an image, once. One that is gone, of another set, or cannot be read for whatever
    /// reason is missing: then blocks count as new.
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
                // The catalog has them now.
                manifest.chunks = Vec::new();
                self.images.insert(id, manifest);
            }
            _ => self.missing.push(id),
        }
    }

    /// Adds the chunks of an image, of whatever set, so that they are not written again. That one
    /// cannot be read costs room, no more.
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

    /// The part of the map that the volume had in its base image. Empty when there is none, or
    /// when it cannot be read: what is in memory is written anew then, which heals it.
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
