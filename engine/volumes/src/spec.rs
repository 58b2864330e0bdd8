//! Specifications of an engine and of a volume.

use std::fmt;
use std::str::FromStr;

use block_device::SectorSize;

use crate::error::{VolumeError, VolumeErrorKind};

/// Settings of an engine, chosen by its owner.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Number of writers that can allocate without waiting for each other. One per core is enough.
    pub lane_count: usize,
    /// Random bytes for the fingerprints of a new pool; an existing pool keeps its own.
    pub fresh_secret: [u8; 32],
}

/// Returns the index of a value in the list of its kind, as the volume tables of pools and journals
/// store it.
pub fn place_of<T: PartialEq>(all: &[T], one: T) -> u8 {
    let place = all.iter().position(|known| *known == one).expect("all are listed");
    u8::try_from(place).expect("there are few")
}

/// Reduction of contents as they are written. Fill patterns need no memory under any policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Duplicates are shared, the rest is compressed.
    Full,
    Compress,
    Dedup,
    None,
}

impl Reduction {
    pub const ALL: [Self; 4] = [Self::Full, Self::Compress, Self::Dedup, Self::None];

    /// The name in the command line and the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Compress => "compress",
            Self::Dedup => "dedup",
            Self::None => "none",
        }
    }

    pub const fn shares_duplicates(self) -> bool {
        matches!(self, Self::Full | Self::Dedup)
    }

    pub const fn compresses(self) -> bool {
        matches!(self, Self::Full | Self::Compress)
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Durability class: what a flush guarantees. Each class includes the guarantees of the one before
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Acknowledged writes survive the end of the process, but not a power failure.
    Ram,
    /// Like `Ram`, but after a power failure the volume is restored from the last image.
    Image,
    /// Flushed writes are on stable storage.
    Journal,
}

impl Durability {
    pub const ALL: [Self; 3] = [Self::Ram, Self::Image, Self::Journal];

    /// The name in the command line and the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ram => "ram",
            Self::Image => "image",
            Self::Journal => "journal",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Participation of a volume of class `journal` in mirrored flushes, if the owner of the pool
/// mirrors them to an image store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeMirror {
    /// Flushes wait for the image store.
    Yes,
    /// Flushes are acknowledged once the journal on this host has them.
    No,
}

impl VolumeMirror {
    pub const ALL: [Self; 2] = [Self::Yes, Self::No];

    /// The name in the command line and the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
        }
    }
}

impl fmt::Display for VolumeMirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Behaviour of a volume when the pool is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityClass {
    /// Memory is allocated as the volume is written. New data is rejected when the pool is full.
    Thin,
    /// The full size is claimed at creation: writes never fail for lack of memory.
    Guaranteed,
}

impl CapacityClass {
    pub const ALL: [Self; 2] = [Self::Thin, Self::Guaranteed];

    /// The name in the command line and the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Thin => "thin",
            Self::Guaranteed => "guaranteed",
        }
    }
}

impl fmt::Display for CapacityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Policy for data past the new end when a volume shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShrinkPolicy {
    /// The resize is rejected.
    KeepData,
    /// The data is dropped.
    DropData,
}

/// Maximum length of a volume name, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// Name of a volume: 1 to 63 of `a-z A-Z 0-9 . _ -`, beginning with a letter or a digit. It can be
/// used as a file name, an NBD export name and a path segment of the API without quoting.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeName(String);

impl VolumeName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for VolumeName {
    type Err = VolumeError;

    fn from_str(name: &str) -> Result<Self, VolumeError> {
        let first_is_good = name.starts_with(|first: char| first.is_ascii_alphanumeric());
        let all_are_good =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if name.len() > NAME_BYTES_MAX || !first_is_good || !all_are_good {
            return Err(VolumeError::new(VolumeErrorKind::InvalidName, name));
        }
        Ok(Self(name.to_owned()))
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Maximum size of a volume: 64 TiB.
pub const SIZE_BYTES_MAX: u64 = 64 << 40;

/// Returns whether a size is valid: a multiple of 4 KiB, not zero, not above the maximum.
pub(crate) fn is_size(size_bytes: u64) -> bool {
    (1..=SIZE_BYTES_MAX).contains(&size_bytes) && size_bytes.is_multiple_of(4096)
}

/// Specification of a volume to create.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    pub name: VolumeName,
    /// A multiple of 4096, from 4096 to 64 TiB. Thin volumes take no memory until they are written.
    pub size_bytes: u64,
    pub sector: SectorSize,
    pub reduction: Reduction,
    pub durability: Durability,
    pub capacity: CapacityClass,
    pub mirror: VolumeMirror,
}

impl VolumeSpec {
    /// Specification with the defaults: sectors of 512 bytes, full reduction, class `ram`, thin,
    /// mirrored.
    pub fn new(name: VolumeName, size_bytes: u64) -> Self {
        Self {
            name,
            size_bytes,
            sector: SectorSize::Bytes512,
            reduction: Reduction::Full,
            durability: Durability::Ram,
            capacity: CapacityClass::Thin,
            mirror: VolumeMirror::Yes,
        }
    }
}
