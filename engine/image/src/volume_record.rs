//! Record of a volume in an image.

use block_device::SectorSize;
use volumes::{CapacityClass, Durability, Reduction, SIZE_BYTES_MAX, VolumeMirror};

/// Maximum length of a name in an image: `VOLUME@SNAPSHOT`, both of maximum length.
pub const IMAGE_NAME_BYTES_MAX: usize = 127;

/// Kind of a volume: writable or a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageVolumeKind {
    Volume,
    Snapshot,
}

impl ImageVolumeKind {
    pub(crate) const ALL: [Self; 2] = [Self::Volume, Self::Snapshot];
}

/// A volume or snapshot in an image, without its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageVolume {
    /// `VOLUME` or `VOLUME@SNAPSHOT`.
    pub name: String,
    /// Id of the volume when it was saved.
    pub id: u64,
    /// Id of the volume from which a snapshot or clone was made, or 0.
    pub origin: u64,
    /// Time of creation in seconds since 1970, or 0 if unknown.
    pub created_seconds: u64,
    pub size_bytes: u64,
    pub sector: SectorSize,
    pub reduction: Reduction,
    pub durability: Durability,
    pub capacity: CapacityClass,
    pub kind: ImageVolumeKind,
    pub mirror: VolumeMirror,
}

impl ImageVolume {
    /// Returns whether the record is valid in an image.
    pub(crate) fn is_sound(&self) -> bool {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
        (1..=IMAGE_NAME_BYTES_MAX).contains(&self.name.len())
            && self.name.bytes().all(is_name)
            && (4096..=SIZE_BYTES_MAX).contains(&self.size_bytes)
            && self.size_bytes.is_multiple_of(4096)
            && self.id != 0
    }

    pub(crate) fn leaf_count(&self) -> u64 {
        self.size_bytes.div_ceil(512 * 4096)
    }
}
