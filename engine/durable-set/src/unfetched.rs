//! Absent blocks that could not be fetched, and their sources.

use std::collections::BTreeMap;

use image::{OpenImage, PackName, PageNumber};
use volumes::{LeftBlock, Volume};

/// Objects of the store that are named when blocks in them cannot be had.
const OBJECTS_NAMED_MAX: usize = 64;

/// Absent blocks that could not be fetched at the last attempt. They are fetched again later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unfetched {
    /// Blocks of all volumes and snapshots together.
    pub blocks: u64,
    /// Objects that have these blocks; if there are very many, the first.
    pub objects: Vec<UnfetchedObject>,
}

/// An object of the store of images from which blocks cannot be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfetchedObject {
    pub pack: PackName,
    /// Reason why the object cannot be read.
    pub cause: String,
    /// Volumes and snapshots by name, with the number of blocks of each.
    pub volumes: BTreeMap<String, u64>,
}

impl Unfetched {
    pub(crate) fn add(&mut self, volume: &Volume, left: &[LeftBlock], image: &OpenImage) {
        self.blocks += left.len() as u64;
        for block in left {
            let page = PageNumber::new(block.number);
            let Some((pack, cause)) = page.and_then(|page| image.whereabouts(page)) else {
                continue;
            };
            let known = self.objects.iter().position(|object| object.pack == pack);
            let place = match known {
                Some(place) => place,
                None if self.objects.len() == OBJECTS_NAMED_MAX => continue,
                None => {
                    let cause = cause.unwrap_or_else(|| "its contents are damaged".to_owned());
                    let volumes = BTreeMap::new();
                    self.objects.push(UnfetchedObject { pack, cause, volumes });
                    self.objects.len() - 1
                }
            };
            *self.objects[place].volumes.entry(volume.name()).or_default() += 1;
        }
    }

    /// Blocks of a volume are absent no more.
    pub(crate) fn forget(&mut self, name: &str) {
        for object in &mut self.objects {
            self.blocks -= object.volumes.remove(name).unwrap_or(0).min(self.blocks);
        }
        self.objects.retain(|object| !object.volumes.is_empty());
    }
}
