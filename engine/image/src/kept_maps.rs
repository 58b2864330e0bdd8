//! Cached maps of images that a pool follows. Updating a map from one image to the next compares
//! both, and the writer of the store may have removed the first one meanwhile.
//!
//! Chunk numbers are unique in a store, so a number identifies the same map part in all of its
//! images.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::error::ImageError;
use crate::format::manifest::PartRecord;
use crate::format::part::{PART_LEAVES, Part};
use crate::names::ChunkNumber;
use crate::open_image::OpenImage;

/// Limit on cached map bytes, enough for more than 64 GiB in small pieces. The rest is read from
/// the store again.
const KEPT_BYTES_MAX: usize = 256 << 20;

/// Parts of maps, by chunk number.
#[derive(Debug, Default)]
pub struct KeptMaps {
    parts: HashMap<ChunkNumber, Arc<Part>>,
    bytes: usize,
}

impl KeptMaps {
    /// Drops parts that none of these images refers to.
    pub fn retain(&mut self, images: &[&OpenImage]) {
        let parts = images.iter().flat_map(|image| image.manifest().parts.iter());
        let used: HashSet<ChunkNumber> = parts.map(|record| record.chunk).collect();
        self.parts.retain(|number, _| used.contains(number));
        self.bytes = self.parts.values().map(|part| part.length_bytes()).sum();
    }

    /// Returns a part of the image's map, from the cache or the store.
    pub(crate) fn part(
        &mut self,
        image: &OpenImage,
        record: &PartRecord,
    ) -> Result<Arc<Part>, ImageError> {
        if let Some(part) = self.parts.get(&record.chunk) {
            return Ok(Arc::clone(part));
        }
        let part = Arc::new(image.read_part(record)?);
        if self.bytes + part.length_bytes() <= KEPT_BYTES_MAX {
            self.bytes += part.length_bytes();
            self.parts.insert(record.chunk, Arc::clone(&part));
        }
        Ok(part)
    }
}

/// Map parts that may have absent blocks, by the volume's id in the image and part number.
#[derive(Debug, Default)]
pub struct ChangedParts(BTreeSet<(u64, u32)>);

impl ChangedParts {
    pub(crate) fn add(&mut self, volume_id: u64, part: u32) {
        self.0.insert((volume_id, part));
    }

    /// Returns the leaf ranges of a volume's map in these parts.
    pub fn leaves_of(&self, volume_id: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let parts = self.0.range((volume_id, 0)..=(volume_id, u32::MAX));
        parts.map(|&(_, part)| {
            let first = u64::from(part) * PART_LEAVES;
            first..first + PART_LEAVES
        })
    }

    pub(crate) fn has(&self, volume_id: u64, part: u32) -> bool {
        self.0.contains(&(volume_id, part))
    }
}
