//! Implementation of [`Folder`] on a Linux directory.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat, fsync, linkat, mkdirat, openat,
    renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use sync::atomic::{AtomicU64, Ordering};

use crate::error::{StorageAction, StorageError, StorageErrorKind};
use crate::file_lock::FileLock;
use crate::file_name;
use crate::folder::{BLOCK_BYTES, FileInfo, Folder, StableFile};
use crate::linux_file::LinuxFile;

/// Prefix of the names of unfinished files.
const UNFINISHED: &str = ".new-";

const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const FOLDER_MODE: Mode = Mode::RWXU;

/// A directory whose files use direct I/O if the file system supports it, and the page cache
/// otherwise.
#[derive(Debug)]
pub struct LinuxFolder {
    path: PathBuf,
    directory: OwnedFd,
}

impl LinuxFolder {
    /// Opens an existing directory.
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(directory) => Ok(Self { path: path.to_owned(), directory }),
            Err(error) => {
                let name = path.display().to_string();
                Err(StorageError::from_io(error.into(), StorageAction::OpenFolder, name))
            }
        }
    }

    /// Opens a directory. Creates it durably if it does not exist. Its parent must exist.
    pub fn open_or_make(path: &Path) -> Result<Self, StorageError> {
        let made = make_folder(rustix::fs::CWD, path).and_then(|()| match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => sync_folder(Path::new(".")),
            Some(parent) => sync_folder(parent),
            None => Ok(()),
        });
        let name = || path.display().to_string();
        made.map_err(|it| StorageError::from_io(it.into(), StorageAction::OpenFolder, name()))?;
        Self::open(path)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Locks the folder for this process, and removes unfinished files. Fails with `Busy` if
    /// another process holds the lock. Subfolders have their own locks.
    pub fn lock(&self) -> Result<FileLock, StorageError> {
        let lock = || -> Result<FileLock, io::Error> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let description = File::from(openat(&self.directory, ".", flags, Mode::empty())?);
            Ok(FileLock::try_take(description)?.ok_or(Errno::WOULDBLOCK)?)
        };
        let lock = lock().map_err(self.failed(StorageAction::Lock))?;
        self.remove_unfinished()?;
        Ok(lock)
    }

    /// Removes the files that a killed process was creating. No process may be creating one.
    pub fn remove_unfinished(&self) -> Result<(), StorageError> {
        let remove = || -> Result<(), Errno> {
            for name in self.names()?.iter().filter(|name| name.starts_with(UNFINISHED)) {
                unlinkat(&self.directory, name, AtFlags::empty())?;
            }
            Ok(())
        };
        remove().map_err(self.failed(StorageAction::Remove))
    }

    fn names(&self) -> Result<Vec<String>, Errno> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.directory)? {
            // Names that are not UTF-8 do not belong to this crate.
            if let Ok(name) = entry?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn file_info(&self, name: String) -> Result<Option<FileInfo>, Errno> {
        let stat: Stat = match statat(&self.directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
            // The file was removed after the names were read.
            Err(Errno::NOENT) => return Ok(None),
            stat => stat?,
        };
        let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
        let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(is_file.then_some(FileInfo { name, size_bytes }))
    }

    fn open_with(&self, name: &str, flags: OFlags) -> Result<LinuxFile, io::Error> {
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = |flags| openat(&self.directory, name, flags, FILE_MODE);
        let file = match open(flags | OFlags::DIRECT) {
            // The file system does not support direct I/O. It may have created the file before it
            // refused.
            Err(Errno::INVAL) => open(flags - OFlags::EXCL),
            opened => opened,
        }?;
        LinuxFile::new(File::from(file), self.path_of(name))
    }

    /// Creates a file of a name that no other call uses: another one that creates the same file
    /// may be writing zeros, on this host or another, and would write them over what is put in
    /// the finished file.
    fn open_unfinished(&self, name: &str) -> Result<(LinuxFile, String), io::Error> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let unfinished = format!("{UNFINISHED}{}-{count}-{name}", std::process::id());
            match self.open_with(&unfinished, OFlags::CREATE | OFlags::EXCL) {
                // A killed process had the same id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                opened => return Ok((opened?, unfinished)),
            }
        }
    }

    /// Gives a finished file its name, unless a file of that name exists.
    fn name_new(&self, unfinished: &str, name: &str) -> Result<(), Errno> {
        let directory = &self.directory;
        match renameat_with(directory, unfinished, directory, name, RenameFlags::NOREPLACE) {
            // The file system does not support renaming without replacing.
            Err(Errno::INVAL | Errno::NOSYS) => {
                linkat(directory, unfinished, directory, name, AtFlags::empty())?;
                unlinkat(directory, unfinished, AtFlags::empty())
            }
            renamed => renamed,
        }
    }

    fn path_of(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    /// Converts an error of an operation on the folder.
    fn failed<Cause>(&self, action: StorageAction) -> impl Fn(Cause) -> StorageError
    where
        Cause: Into<io::Error>,
    {
        move |error| StorageError::from_io(error.into(), action, self.path.display().to_string())
    }

    /// Converts an error of an operation on a file or subfolder.
    fn failed_on<Cause>(&self, name: &str, action: StorageAction) -> impl Fn(Cause) -> StorageError
    where
        Cause: Into<io::Error>,
    {
        move |error| StorageError::from_io(error.into(), action, self.path_of(name))
    }
}

impl Folder for LinuxFolder {
    fn create(&self, name: &str, size_bytes: u64) -> Result<Arc<dyn StableFile>, StorageError> {
        let action = StorageAction::Create;
        file_name::check(name, action)?;
        if !size_bytes.is_multiple_of(BLOCK_BYTES as u64) {
            let kind = StorageErrorKind::Invalid("a file's size is a multiple of 4096 bytes");
            return Err(StorageError::new(kind, action, self.path_of(name)));
        }
        let failed = self.failed_on(name, action);
        if statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(failed(Errno::EXIST.into()));
        }
        let (mut file, unfinished) = self.open_unfinished(name).map_err(&failed)?;
        let make = || -> io::Result<LinuxFile> {
            file.write_zeros(size_bytes)?;
            self.name_new(&unfinished, name)?;
            fsync(&self.directory)?;
            file.set_name(self.path_of(name));
            Ok(file)
        };
        match make() {
            Ok(file) => Ok(Arc::new(file)),
            Err(error) => {
                // If this fails too, the file only occupies space until the next owner removes it.
                let _ = unlinkat(&self.directory, &unfinished, AtFlags::empty());
                Err(failed(error))
            }
        }
    }

    fn open(&self, name: &str) -> Result<Arc<dyn StableFile>, StorageError> {
        file_name::check(name, StorageAction::Open)?;
        let opened = self.open_with(name, OFlags::empty());
        Ok(Arc::new(opened.map_err(self.failed_on(name, StorageAction::Open))?))
    }

    fn folder(&self, name: &str) -> Result<Arc<dyn Folder>, StorageError> {
        file_name::check(name, StorageAction::OpenFolder)?;
        let open = || -> Result<Self, Errno> {
            make_folder(&self.directory, Path::new(name))?;
            fsync(&self.directory)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = openat(&self.directory, name, flags, Mode::empty())?;
            Ok(Self { path: self.path.join(name), directory })
        };
        Ok(Arc::new(open().map_err(self.failed_on(name, StorageAction::OpenFolder))?))
    }

    fn list(&self) -> Result<Vec<FileInfo>, StorageError> {
        let list = || -> Result<Vec<FileInfo>, Errno> {
            let mut files = Vec::new();
            for name in self.names()?.into_iter().filter(|name| file_name::is_valid(name)) {
                files.extend(self.file_info(name)?);
            }
            files.sort();
            Ok(files)
        };
        list().map_err(self.failed(StorageAction::List))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        file_name::check(from, StorageAction::Rename)?;
        file_name::check(to, StorageAction::Rename)?;
        renameat(&self.directory, from, &self.directory, to)
            .map_err(self.failed_on(from, StorageAction::Rename))
    }

    fn publish(&self, from: &str, to: &str) -> Result<(), StorageError> {
        file_name::check(from, StorageAction::Rename)?;
        file_name::check(to, StorageAction::Rename)?;
        self.name_new(from, to).map_err(self.failed_on(to, StorageAction::Rename))
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        file_name::check(name, StorageAction::Remove)?;
        unlinkat(&self.directory, name, AtFlags::empty())
            .map_err(self.failed_on(name, StorageAction::Remove))
    }

    fn sync_names(&self) -> Result<(), StorageError> {
        fsync(&self.directory).map_err(self.failed(StorageAction::SyncNames))
    }

    fn free_bytes(&self) -> Result<u64, StorageError> {
        let stat = rustix::fs::fstatvfs(&self.directory);
        let stat = stat.map_err(self.failed(StorageAction::MeasureFree))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

fn make_folder(parent: impl std::os::fd::AsFd, path: &Path) -> Result<(), Errno> {
    match mkdirat(parent, path, FOLDER_MODE) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

fn sync_folder(path: &Path) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fsync(rustix::fs::open(path, flags, Mode::empty())?)
}
