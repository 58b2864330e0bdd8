//! A file system in use, unmounted at the end.

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
    /// Mounts `device` on `folder`, which is made.
    pub fn new(device: &Path, folder: &Path, options: &str) -> Result<Self> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Tool::new("mount -o").arg(options).arg(device).arg(folder).check()?;
        Ok(Self { folder: folder.to_owned(), is_mounted: true })
    }

    /// Mount that another process made on `folder`.
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
            // Something went wrong before; what matters is that nothing keeps the device.
            let _ = Tool::new("umount --lazy").arg(&self.folder).run();
        }
    }
}
