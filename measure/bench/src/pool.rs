//! Temporary pools for measurements, in huge pages if available.

use std::path::PathBuf;

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use region::{Region, RegionSpec};

/// A folder on tmpfs, removed when dropped.
pub(crate) struct Place {
    folder: TempDir,
    mounted: bool,
}

impl Place {
    /// Mounts a tmpfs with huge pages if run as root. Otherwise uses /dev/shm as it is.
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("memlane-bench-")
            .tempdir_in("/dev/shm")
            .context("cannot create a directory in /dev/shm")?;
        let options = c"huge=always,mode=0700";
        let mounted =
            mount("memlane-bench", folder.path(), "tmpfs", MountFlags::empty(), options).is_ok();
        Ok(Self { folder, mounted })
    }

    pub(crate) fn has_huge_pages(&self) -> bool {
        self.mounted
    }

    /// Creates a region with all of its memory populated.
    pub(crate) fn region(&self, name: &str, size_bytes: u64) -> Result<Region> {
        let path: PathBuf = self.folder.path().join(name);
        let region = Region::open(&RegionSpec { path, size_bytes })?;
        let mut next = Some(0);
        while let Some(offset) = next {
            next = region
                .populate(offset..region.capacity_bytes())
                .context("cannot prepare the memory")?;
        }
        Ok(region)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.mounted {
            // Detached, so that open mappings do not keep it mounted.
            let _ = unmount(self.folder.path(), UnmountFlags::DETACH);
        }
    }
}
