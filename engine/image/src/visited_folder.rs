//! Folder store that another daemon writes, and that may disappear and reappear.
//!
//! Each call looks up the folder by path, so a remounted file system is found. Nothing is created
//! in it, because only its owner may do that.

use std::path::{Path, PathBuf};

use storage::AlignedBuffer;

use crate::error::{ImageError, ImageErrorKind};
use crate::folder_store::{FolderStore, open_folder};
use crate::names::{ExtractName, PackName};
use crate::store::{ImageStore, ObjectName, PackWriter};

/// The images in a directory at the time of each call. A missing directory fails with
/// `Unavailable`. A directory in which no daemon has created a store has no images.
#[derive(Debug)]
pub struct VisitedFolder {
    path: PathBuf,
}

impl VisitedFolder {
    /// Creates the store without reading the directory.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Fails with `NotFound` if the directory does not exist.
    pub fn check_exists(&self) -> Result<(), ImageError> {
        open_folder(&self.path).map(drop)
    }

    fn visit(&self) -> Result<FolderStore, ImageError> {
        FolderStore::open(&self.path).map_err(|error| match error.kind {
            // The folder itself is missing, not an object in it.
            ImageErrorKind::NotFound => ImageError { kind: ImageErrorKind::Unavailable, ..error },
            _ => error,
        })
    }

    /// Distinguishes an empty directory from a missing one.
    fn is_empty(&self) -> bool {
        let entries = std::fs::read_dir(&self.path);
        entries.is_ok_and(|mut entries| entries.next().is_none())
    }
}

impl ImageStore for VisitedFolder {
    fn begin_pack(&self, name: PackName) -> Result<Box<dyn PackWriter>, ImageError> {
        self.visit()?.begin_pack(name)
    }

    fn create_image(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError> {
        self.visit()?.create_image(number, manifest)
    }

    fn confirm_image(&self, number: u32) -> Result<(), ImageError> {
        self.visit()?.confirm_image(number)
    }

    fn read(&self, object: ObjectName, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        self.visit()?.read(object, offset, into)
    }

    fn reads_at_once(&self) -> usize {
        FolderStore::READS_AT_ONCE
    }

    fn images(&self) -> Result<Vec<(u32, u64)>, ImageError> {
        match self.visit() {
            Err(_) if self.is_empty() => Ok(Vec::new()),
            visited => visited?.images(),
        }
    }

    fn packs(&self) -> Result<Vec<(PackName, u64)>, ImageError> {
        self.visit()?.packs()
    }

    fn put_extract(&self, name: ExtractName, bytes: &AlignedBuffer) -> Result<(), ImageError> {
        self.visit()?.put_extract(name, bytes)
    }

    fn extracts(&self) -> Result<Vec<(ExtractName, u64)>, ImageError> {
        self.visit()?.extracts()
    }

    fn remove(&self, object: ObjectName) -> Result<(), ImageError> {
        self.visit()?.remove(object)
    }
}
