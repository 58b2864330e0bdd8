//! Memory that outlives the process, addressed by offsets.

use std::path::PathBuf;

/// Where a region's file shall lie and how large it is.
#[derive(Clone, Debug)]
pub struct RegionSpec {
    /// A file on tmpfs or hugetlbfs. Made when it does not exist.
    pub path: PathBuf,
    /// A multiple of 2 MiB. Must be what the file has when it exists.
    pub size_bytes: u64,
}

/// Why a region cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RegionError(pub String);

/// One mapping.
pub struct Region;

impl Region {
    /// Opens the file or makes it, takes its lock and all of its memory.
    pub fn open(_spec: &RegionSpec) -> Result<Self, RegionError> {
        unimplemented!()
    }

    pub fn size_bytes(&self) -> u64 {
        unimplemented!()
    }
}
