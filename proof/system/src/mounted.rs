//! A mounted file system, unmounted at the end.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::interruption::Interruption;
use crate::tool::Tool;

/// A mounted device.
pub struct Mounted {
    folder: PathBuf,
    is_mounted: bool,
}

impl Mounted {
    /// Mounts `device` on `folder`, which is created.
    pub fn new(device: &Path, folder: &Path, options: &str) -> Result<Self> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Tool::new("mount -o").arg(options).arg(device).arg(folder).check()?;
        Ok(Self { folder: folder.to_owned(), is_mounted: true })
    }

    /// Adopts a mount of another process on `folder`.
    pub fn existing(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), is_mounted: true }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn unmount(mut self) -> Result<()> {
        Tool::new("umount").arg(&self.folder).check()?;
        self.is_mounted = false;
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _cleaning_up = Interruption::begin_to_clean_up();
        if self.is_mounted {
            // Something has failed before. The device must not stay in use.
            let _ = Tool::new("umount --lazy").arg(&self.folder).run();
        }
    }
}
