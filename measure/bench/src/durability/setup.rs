//! Set-up of the suite: a folder on the disk, and a daemon with journal and images in it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use system::{Ability, Daemon, missing};
use tempfile::TempDir;

use crate::targets::OwnDaemon;

/// Folder on the reference disk, as in other suites.
const DISK_FOLDER: &str = "/var/tmp";

/// A temporary folder on the disk, removed when dropped.
pub(crate) struct DiskFolder(TempDir);

impl DiskFolder {
    pub(crate) fn new() -> Result<Self> {
        let made = tempfile::Builder::new().prefix("memlane-bench-").tempdir_in(DISK_FOLDER);
        let folder = made.with_context(|| format!("cannot create a directory in {DISK_FOLDER}"))?;
        let text = folder.path().to_string_lossy();
        // The daemon's flags are passed as one space-separated line.
        ensure!(!text.contains(char::is_whitespace), "the path {text} contains a space");
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.path().join("images")
    }
}

/// Starts a daemon with journal and images in `folder` and a pool of at least this size.
pub(crate) fn start_daemon(folder: &DiskFolder, pool_bytes: u64) -> Result<OwnDaemon> {
    let path = folder.path().display();
    let no_fuse = if can_attach() { "" } else { "--no-fuse" };
    let flags = format!(
        "--journal-dir {path}/journal --images-store {} --images-save-at-stop false {no_fuse}",
        folder.images().display()
    );
    let pool_size = format!("{}MiB", pool_bytes.div_ceil(2 << 20) * 2);
    Ok(OwnDaemon::new(Daemon::start_flagged(pool_size, flags)?))
}

/// Returns whether volumes can be block devices here.
pub(crate) fn can_attach() -> bool {
    missing(&[Ability::BlockDevices]).is_none()
}
