//! A file on ext4 on another target.

use std::fs::File;

use anyhow::{Context, Result, bail};
use results::DeviceIo;
use system::{Mounted, Tool};
use tempfile::TempDir;

use super::files::open_to_all;
use crate::targets::target::{Access, Backing, Target, Traits, opens_directly};

/// Returns the space of the file system itself: journal, tables and reserve.
fn own_bytes(size_bytes: u64) -> u64 {
    size_bytes / 8 + (16 << 20)
}

/// Fields are dropped in order: the mount first.
struct OnFileSystem {
    _mounted: Mounted,
    _folder: TempDir,
    below: Box<dyn Backing>,
}

impl Backing for OnFileSystem {
    fn used_bytes(&self) -> Result<Option<u64>> {
        self.below.used_bytes()
    }

    fn pending_bytes(&self) -> Result<u64> {
        self.below.pending_bytes()
    }

    fn counts(&self) -> Result<Option<DeviceIo>> {
        self.below.counts()
    }

    fn server_ids(&self) -> Vec<u32> {
        self.below.server_ids()
    }

    fn server_command(&self) -> Option<String> {
        self.below.server_command()
    }
}

/// Creates ext4 on the target, and a file that occupies most of it.
pub(super) fn ext4_on(target: Target, name: String) -> Result<Target> {
    let whole_bytes = target.size_bytes();
    let size_bytes = whole_bytes.saturating_sub(own_bytes(whole_bytes)) >> 20 << 20;
    let (traits, below) = target.into_backing();
    let Access::File { path: device, .. } = &traits.access else {
        bail!("{name}: there is no block device");
    };
    Tool::new("mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0").arg(device).check()?;
    let folder = tempfile::Builder::new().prefix("memlane-bench-").tempdir_in("/var/tmp");
    let folder = folder.context("cannot create a directory to mount on")?;
    open_to_all(folder.path())?;
    let mounted = Mounted::new(device, &folder.path().join("mnt"), "noatime")?;
    let path = mounted.folder().join("data");
    File::create(&path)
        .and_then(|file| file.set_len(size_bytes))
        .with_context(|| format!("cannot make {}", path.display()))?;
    let access = Access::File { direct: opens_directly(&path), path };
    let own = OnFileSystem { _mounted: mounted, _folder: folder, below };
    Ok(Target::new(name, size_bytes, Traits { access, ..traits }, Box::new(own)))
}
