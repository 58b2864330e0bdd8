//! Absent blocks that could not be fetched, with the objects that contain them.

use std::collections::BTreeMap;

use image::{OpenImage, PackName, PageNumber};
use volumes::{LeftBlock, Volume};

/// Maximum number of objects that are listed with unfetched blocks.
const OBJECTS_NAMED_MAX: usize = 64;

/// Absent blocks that could not be fetched at the last attempt. They are retried later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unfetched {
    /// Number of blocks of all volumes and snapshots.
    pub blocks: u64,
    /// Objects that contain these blocks, or the first ones if there are very many.
    pub objects: Vec<UnfetchedObject>,
}

/// An object in the image store from which blocks cannot be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfetchedObject {
    pub pack: PackName,
    /// Reason why the object cannot be read.
    pub cause: String,
    /// Number of blocks by name of volume or snapshot.
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

    /// Removes a volume whose blocks are no longer absent.
    pub(crate) fn forget(&mut self, name: &str) {
        for object in &mut self.objects {
            self.blocks -= object.volumes.remove(name).unwrap_or(0).min(self.blocks);
        }
        self.objects.retain(|object| !object.volumes.is_empty());
    }
}
