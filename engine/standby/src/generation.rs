//! A consistent set of volumes for readers, as of one image.

use std::collections::HashMap;
use std::sync::Arc;

use image::OpenImage;
use volumes::{Engine, Frozen, Volume, VolumeError};

/// All volumes and snapshots of one image, complete in memory and immutable. If the pool runs short
/// of memory they are given up, and reads of them fail.
#[derive(Debug)]
pub struct Generation {
    image_number: u32,
    saved_unix_seconds: u64,
    /// Indices into the list of copies, by name.
    places: HashMap<String, usize>,
    copies: Frozen,
}

impl Generation {
    pub(crate) fn of(engine: &Engine, image: &OpenImage) -> Result<Self, VolumeError> {
        let mut all = engine.volumes();
        all.extend(engine.snapshots());
        let copies = engine.freeze(&all)?;
        let names = copies.volumes().iter().map(|copy| copy.name());
        Ok(Self {
            image_number: image.id().number(),
            saved_unix_seconds: image.summary().created_seconds,
            places: names.zip(0..).collect(),
            copies,
        })
    }

    /// Returns the number of the image.
    pub fn image_number(&self) -> u32 {
        self.image_number
    }

    /// Returns the time at which the image was saved, by the clock of its writer's host.
    pub fn saved_unix_seconds(&self) -> u64 {
        self.saved_unix_seconds
    }

    /// Returns a volume, or a snapshot as `VOLUME@SNAPSHOT`.
    pub fn volume(&self, name: &str) -> Option<&Arc<Volume>> {
        Some(&self.copies.volumes()[*self.places.get(name)?])
    }

    /// Returns all volumes and snapshots.
    pub fn volumes(&self) -> &[Arc<Volume>] {
        self.copies.volumes()
    }

    /// Returns whether all volumes can still be read.
    pub fn is_whole(&self) -> bool {
        self.copies.is_whole()
    }
}
