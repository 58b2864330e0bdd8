//! Image store in a folder of files.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use storage::{
    AlignedBuffer, FileInfo, FileLock, Folder, LinuxFolder, StableFile, StorageError,
    StorageErrorKind,
};

use crate::arrival::{Arrival, Arrivals, remove_unfinished};
use crate::error::{ImageError, ImageErrorKind};
use crate::extract_log::{self, ExtractLogs};
use crate::format::ALIGNMENT_BYTES;
use crate::names::{ExtractName, PackName};
use crate::store::{ImageStore, ObjectName, PackWriter};

/// Images as files `images/0000000007` and `packs/<writer>-<index>` in a folder.
#[derive(Debug)]
pub struct FolderStore {
    images: Arc<dyn Folder>,
    packs: Arc<dyn Folder>,
    /// Folder of journal extracts. `None` if the store was created by a daemon that does not write
    /// them.
    journal: Option<Arc<dyn Folder>>,
    /// Files of short extracts that this process writes. `None` if the store is only read.
    extract_logs: Option<ExtractLogs>,
    arrivals: Arrivals,
    /// This process serves the store to other hosts.
    is_serving: bool,
    _lock: Option<FileLock>,
}

const SUBFOLDERS: [&str; 3] = ["journal", "images", "packs"];

impl FolderStore {
    /// Two reads keep a disk busy. One does not.
    pub(crate) const READS_AT_ONCE: usize = 2;

    /// Opens a store in `folder`, creating missing subfolders.
    pub fn new(folder: &dyn Folder) -> Result<Self, ImageError> {
        let within = |name| {
            let opened = folder.folder(name);
            opened.map_err(ImageError::storage(|| format!("open the directory {name}")))
        };
        let journal = Some(within("journal")?);
        let (images, packs) = (within("images")?, within("packs")?);
        let extract_logs = Some(ExtractLogs::default());
        let arrivals = Arrivals::default();
        Ok(Self { images, packs, journal, extract_logs, arrivals, is_serving: false, _lock: None })
    }

    /// Opens a store in `folder` as [`FolderStore::new`] does, for a process that serves it to
    /// other hosts. All writers use this object or [`FolderStore::receive`] on it.
    pub fn serving(folder: &dyn Folder) -> Result<Self, ImageError> {
        let store = Self { is_serving: true, ..Self::new(folder)? };
        store.remove_unfinished()?;
        Ok(store)
    }

    /// Removes what a killed process left. Nobody else uses the folder.
    fn remove_unfinished(&self) -> Result<(), ImageError> {
        for folder in [Some(&self.images), self.journal.as_ref()].into_iter().flatten() {
            remove_unfinished(&**folder)?;
        }
        Ok(())
    }

    /// Opens the store in the directory at `path` for reading, even while others write. Fails if
    /// the directory does not exist, and creates nothing.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let within = |name: &str| -> Result<Arc<dyn Folder>, ImageError> {
            Ok(Arc::new(open_folder(&path.join(name))?))
        };
        open_folder(path)?;
        let journal = match within("journal") {
            Err(error) if error.kind == ImageErrorKind::NotFound => None,
            opened => Some(opened?),
        };
        let (images, packs) = (within("images")?, within("packs")?);
        let (extract_logs, arrivals) = (None, Arrivals::default());
        Ok(Self { images, packs, journal, extract_logs, arrivals, is_serving: false, _lock: None })
    }

    /// Opens the store in the directory at `path` for writing, creating it if needed. It is locked
    /// against other processes on this host until dropped.
    pub fn open_alone(path: &Path) -> Result<Self, ImageError> {
        let folder = LinuxFolder::open_or_make(path).map_err(opening(path))?;
        let lock = lock(&folder)?;
        let store = Self { _lock: Some(lock), ..Self::new(&folder)? };
        for name in SUBFOLDERS {
            open_folder(&path.join(name))?.remove_unfinished().map_err(opening(path))?;
        }
        store.remove_unfinished()?;
        if let Some(journal) = &store.journal {
            let attempt = || "remove empty files of the journal".to_owned();
            extract_log::remove_empty_files(&**journal).map_err(ImageError::storage(attempt))?;
        }
        Ok(store)
    }

    /// Opens the store in the directory at `path` as [`FolderStore::open_alone`] does, for a
    /// process that serves it to other hosts.
    pub fn serve_alone(path: &Path) -> Result<Self, ImageError> {
        Ok(Self { is_serving: true, ..Self::open_alone(path)? })
    }

    /// Returns the bytes of all files. It is more than that of all objects: a file of extracts has
    /// its full length from the beginning.
    pub fn file_bytes(&self) -> Result<u64, ImageError> {
        let folders = [Some(&self.images), Some(&self.packs), self.journal.as_ref()];
        let bytes = folders.into_iter().flatten().map(|folder| {
            let files = list(&**folder, "files of the store")?;
            Ok(files.iter().map(|file| file.size_bytes).sum::<u64>())
        });
        bytes.sum()
    }

    /// Returns the bytes of the files of extracts that were begun since the store was opened.
    pub fn begun_bytes(&self) -> u64 {
        self.extract_logs.as_ref().map_or(0, |logs| logs.begun_count() * extract_log::LOG_BYTES)
    }

    /// Returns the bytes of files that an object of this length may add at most.
    pub fn needed_bytes(object: ObjectName, length_bytes: u64) -> u64 {
        match object {
            ObjectName::Extract(_) if length_bytes <= extract_log::SHORT_BYTES_MAX as u64 => {
                extract_log::LOG_BYTES
            }
            _ => length_bytes,
        }
    }

    /// Begins to receive an object: a manifest or an extract as a whole, with `offset` 0, or a part
    /// of a pack from `offset` on. Calls and their arrivals may be concurrent. Fails with `Invalid`
    /// if the store is not open for serving.
    pub fn receive(&self, object: ObjectName, offset: u64) -> Result<Arrival, ImageError> {
        let attempt = || format!("receive {object}");
        match object {
            _ if !self.is_serving => Err(ImageError::new(ImageErrorKind::Invalid, attempt())),
            ObjectName::Pack(_) => Arrival::part(&self.packs, object, offset),
            ObjectName::Image(number) if offset == 0 => {
                Arrival::whole(&self.images, (object, image_file(number)), &self.arrivals)
            }
            ObjectName::Extract(name) if offset == 0 => {
                Arrival::whole(self.journal(object)?, (object, name.to_string()), &self.arrivals)
            }
            _ => Err(ImageError::new(ImageErrorKind::Invalid, attempt())),
        }
    }

    /// Fails with `Locked` if another process on this host has the store open for writing. Also
    /// fails if the directory does not exist. Creates nothing.
    pub fn check_free(path: &Path) -> Result<(), ImageError> {
        lock(&open_folder(path)?).map(drop)
    }

    fn folder_of(&self, object: ObjectName) -> Result<(&dyn Folder, String), ImageError> {
        Ok(match object {
            ObjectName::Image(number) => (&*self.images, image_file(number)),
            ObjectName::Pack(name) => (&*self.packs, name.to_string()),
            ObjectName::Extract(name) => (&**self.journal(object)?, name.to_string()),
        })
    }

    fn journal(&self, object: ObjectName) -> Result<&Arc<dyn Folder>, ImageError> {
        let missing = || ImageError::new(ImageErrorKind::NotFound, format!("find {object}"));
        self.journal.as_ref().ok_or_else(missing)
    }

    fn remove_extract(&self, name: ExtractName) -> Result<(), ImageError> {
        let object = ObjectName::Extract(name);
        let folder = self.journal(object)?;
        let removed = match &self.extract_logs {
            Some(logs) => logs.remove(&**folder, name),
            None => ExtractLogs::default().remove(&**folder, name),
        };
        removed.map_err(ImageError::storage(|| format!("remove {object}")))
    }

    fn write_image(&self, number: u32, manifest: &[u8]) -> Result<(), StorageError> {
        let file = self.images.create(&image_file(number), manifest.len() as u64)?;
        let mut bytes = AlignedBuffer::with_capacity(manifest.len());
        bytes.extend_from_slice(manifest);
        let written = write_manifest(&*file, &bytes);
        if written.is_err() {
            // Frees the number. If this fails too, an unfinished manifest occupies it.
            let _ = self.images.remove(&image_file(number));
        }
        written
    }

    /// Rewrites the manifest. Data left by a failed write is readable but may be lost at a power
    /// failure, even after a later successful sync.
    fn rewrite_image(&self, number: u32) -> Result<(), StorageError> {
        let file = self.images.open(&image_file(number))?;
        let length = usize::try_from(file.size_bytes()).expect("manifests fit memory");
        let mut bytes = AlignedBuffer::zeroed(length);
        file.read(0, &mut bytes)?;
        write_manifest(&*file, &bytes)?;
        self.images.sync_names()
    }
}

/// Writes the header last. A manifest without it is unfinished.
fn write_manifest(file: &dyn StableFile, bytes: &[u8]) -> Result<(), StorageError> {
    let (header, body) = bytes.split_at(ALIGNMENT_BYTES.min(bytes.len()));
    write_durably(file, ALIGNMENT_BYTES as u64, body)?;
    write_durably(file, 0, header)
}

impl ImageStore for FolderStore {
    fn begin_pack(&self, name: PackName) -> Result<Box<dyn PackWriter>, ImageError> {
        let file = self.packs.create(&name.to_string(), 0);
        let file = file.map_err(ImageError::storage(|| format!("begin pack {name}")))?;
        Ok(Box::new(FilePack { name, file, length_bytes: 0 }))
    }

    fn create_image(&self, number: u32, manifest: &[u8]) -> Result<(), ImageError> {
        if self.is_serving {
            let mut bytes = AlignedBuffer::with_capacity(manifest.len());
            bytes.extend_from_slice(manifest);
            let object = ObjectName::Image(number);
            return put_whole(&self.images, (object, image_file(number)), &bytes, &self.arrivals);
        }
        let attempt = || format!("create the manifest of image {number}");
        self.write_image(number, manifest).map_err(ImageError::storage(attempt))
    }

    fn confirm_image(&self, number: u32) -> Result<(), ImageError> {
        let attempt = || format!("make the manifest of image {number} durable");
        self.rewrite_image(number).map_err(ImageError::storage(attempt))
    }

    fn read(&self, object: ObjectName, offset: u64, into: &mut [u8]) -> Result<(), ImageError> {
        let (folder, file) = self.folder_of(object)?;
        let opened = match object {
            ObjectName::Extract(name) => extract_log::open(folder, name),
            _ => folder.open(&file).map(|file| {
                let size_bytes = file.size_bytes();
                (file, 0, size_bytes)
            }),
        };
        let read = opened.and_then(|(file, begin, size_bytes)| {
            // A range beyond the end means that the file is damaged, not that the caller is wrong.
            let end = offset.checked_add(into.len() as u64);
            match end.is_some_and(|end| end <= size_bytes) {
                true => file.read(begin + offset, into).map(|()| true),
                false => Ok(false),
            }
        });
        let attempt = || format!("read {} bytes at {offset} of {object}", into.len());
        match read {
            Ok(true) => Ok(()),
            Ok(false) => Err(ImageError::new(ImageErrorKind::Damaged, attempt())
                .with_source("the file is shorter than it was")),
            Err(error) => Err(ImageError::storage(attempt)(error)),
        }
    }

    fn reads_at_once(&self) -> usize {
        Self::READS_AT_ONCE
    }

    fn images(&self) -> Result<Vec<(u32, u64)>, ImageError> {
        let files = list(&*self.images, "images")?;
        let number = |file: &FileInfo| {
            let number = file.name.parse().ok()?;
            (image_file(number) == file.name).then_some((number, file.size_bytes))
        };
        Ok(files.iter().filter_map(number).collect())
    }

    fn packs(&self) -> Result<Vec<(PackName, u64)>, ImageError> {
        let files = list(&*self.packs, "packs")?;
        let name = |file: &FileInfo| Some((file.name.parse().ok()?, file.size_bytes));
        Ok(files.iter().filter_map(name).collect())
    }

    fn put_extract(&self, name: ExtractName, bytes: &AlignedBuffer) -> Result<(), ImageError> {
        let object = ObjectName::Extract(name);
        let folder = self.journal(object)?;
        if let Some(logs) = &self.extract_logs {
            let attempt = || format!("put {object}");
            if logs.put(&**folder, name, bytes).map_err(ImageError::storage(attempt))? {
                return Ok(());
            }
        }
        put_whole(folder, (object, name.to_string()), bytes, &self.arrivals)
    }

    fn extracts(&self) -> Result<Vec<(ExtractName, u64)>, ImageError> {
        let Some(folder) = &self.journal else { return Ok(Vec::new()) };
        let attempt = || "list the extracts of the journal".to_owned();
        extract_log::list(&**folder).map_err(ImageError::storage(attempt))
    }

    fn remove(&self, object: ObjectName) -> Result<(), ImageError> {
        if let ObjectName::Extract(name) = object {
            return self.remove_extract(name);
        }
        let (folder, file) = self.folder_of(object)?;
        // A removed manifest may reappear until its removal is durable. Its packs are kept until
        // then.
        let manifests = match object {
            ObjectName::Pack(_) => self.images.sync_names(),
            ObjectName::Image(_) | ObjectName::Extract(_) => Ok(()),
        };
        let removed = manifests.and_then(|()| folder.remove(&file));
        let removed = removed.and_then(|()| folder.sync_names());
        match removed {
            Err(error) if error.kind == StorageErrorKind::NotFound => Ok(()),
            other => other.map_err(ImageError::storage(|| format!("remove {object}"))),
        }
    }

    fn remove_extracts(&self, names: &[ExtractName]) -> Result<(), ImageError> {
        let Some(folder) = &self.journal else { return Ok(()) };
        let removed = match &self.extract_logs {
            Some(logs) => logs.remove_all(&**folder, names),
            None => ExtractLogs::default().remove_all(&**folder, names),
        };
        removed.map_err(ImageError::storage(|| "remove extracts of the journal".to_owned()))
    }
}

#[derive(Debug)]
struct FilePack {
    name: PackName,
    file: Arc<dyn StableFile>,
    length_bytes: u64,
}

impl PackWriter for FilePack {
    fn append(&mut self, bytes: &AlignedBuffer) -> Result<(), ImageError> {
        let written = self.file.write(self.length_bytes, &[IoSlice::new(bytes)]);
        let attempt = || {
            format!("write {} bytes at {} of pack {}", bytes.len(), self.length_bytes, self.name)
        };
        written.map_err(ImageError::storage(attempt))?;
        self.length_bytes += bytes.len() as u64;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), ImageError> {
        self.file.sync().map_err(ImageError::storage(|| format!("finish pack {}", self.name)))
    }
}

fn put_whole(
    folder: &Arc<dyn Folder>,
    named: (ObjectName, String),
    bytes: &AlignedBuffer,
    arrivals: &Arrivals,
) -> Result<(), ImageError> {
    let mut arrival = Arrival::whole(folder, named, arrivals)?;
    arrival.append(bytes)?;
    arrival.finish(None)
}

fn image_file(number: u32) -> String {
    format!("{number:010}")
}

/// Opens the directory at `path`. Fails if it does not exist.
pub(crate) fn open_folder(path: &Path) -> Result<LinuxFolder, ImageError> {
    LinuxFolder::open(path).map_err(opening(path))
}

fn opening(path: &Path) -> impl FnOnce(StorageError) -> ImageError {
    ImageError::storage(move || format!("open the directory {} for images", path.display()))
}

fn lock(folder: &LinuxFolder) -> Result<FileLock, ImageError> {
    let attempt = || format!("claim the directory {} for writing images", folder.path().display());
    folder.lock().map_err(ImageError::storage(attempt))
}

fn list(folder: &dyn Folder, what: &str) -> Result<Vec<FileInfo>, ImageError> {
    folder.list().map_err(ImageError::storage(|| format!("list the {what}")))
}

fn write_durably(file: &dyn StableFile, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
    match bytes {
        [] => Ok(()),
        bytes => file.write_durably(offset, &[IoSlice::new(bytes)]),
    }
}
