//! Volumes as one image has them, for readers.

use std::collections::HashMap;
use std::sync::Arc;

use image::OpenImage;
use volumes::{Engine, Frozen, Volume, VolumeError};

/// All volumes and snapshots of one image, complete in memory. They do not change. When the pool
/// is short of memory they are given up, and reads of them fail.
#[derive(Debug)]
pub struct Generation {
    image_number: u32,
    saved_unix_seconds: u64,
    /// By name, as places in the list of copies.
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

    /// Number of the image.
    pub fn image_number(&self) -> u32 {
        self.image_number
    }

    /// Time at which the image was saved, by the clock of the host that saved it.
    pub fn saved_unix_seconds(&self) -> u64 {
        self.saved_unix_seconds
    }

    /// A volume, or a snapshot as `VOLUME@SNAPSHOT`.
    pub fn volume(&self, name: &str) -> Option<&Arc<Volume>> {
        Some(&self.copies.volumes()[*self.places.get(name)?])
    }

    /// Volumes and snapshots.
    pub fn volumes(&self) -> &[Arc<Volume>] {
        self.copies.volumes()
    }

    /// Returns whether all volumes can still be read.
    pub fn is_whole(&self) -> bool {
        self.copies.is_whole()
    }
}
