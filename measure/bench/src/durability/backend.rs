//! Backends for durable writes: the disk itself, and volumes of class `journal` with their journal
//! on that disk.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use system::{
    Ability, Daemon, Interruption, Mounted, NbdClient, Tool, attach, attach_with, missing,
};

use super::setup::{DiskFolder, start_daemon};
use super::writers::{Storage, Writer};
use crate::contents::{Contents, Data};
use crate::targets::OwnDaemon;

/// Size of the range that a writer overwrites.
const SHARE_BYTES: u64 = 16 << 20;

/// Maximum number of concurrent writers.
pub(super) const WRITERS_MAX: u64 = 8;

/// Size of a volume with the ranges of all writers, and space for a file system.
const VOLUME_BYTES: u64 = 256 << 20;

/// Size of a pool for all volumes, freed pages and tables.
pub(super) const POOL_BYTES: u64 = 1 << 30;

const PIECE_BYTES: usize = 1 << 20;

/// Destination of durable writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    /// Files on the disk.
    Disk,
    /// Files on ext4 on an attached volume.
    Ext4,
    /// The attached volume itself.
    Attached,
    /// The attached volume, whose device flushes each write.
    EachFlushed,
    Nbd,
}

impl Backend {
    pub(super) const ALL: [Self; 5] =
        [Self::Disk, Self::Ext4, Self::Attached, Self::EachFlushed, Self::Nbd];

    /// Returns the reason why it is unavailable here, or `None`.
    pub(super) fn missing(self) -> Option<String> {
        match self {
            Self::Disk | Self::Nbd => None,
            Self::Attached | Self::EachFlushed => missing(&[Ability::BlockDevices]),
            Self::Ext4 => missing(&[Ability::BlockDevices, Ability::Program("mkfs.ext4")]),
        }
    }

    fn volume(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Ext4 => "ext4",
            Self::Attached => "raw",
            Self::EachFlushed => "log",
            Self::Nbd => "nbd",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "files on the disk",
            Self::Ext4 => "journal volume attached + ext4",
            Self::Attached => "journal volume attached",
            Self::EachFlushed => "journal volume attached, each write flushed",
            Self::Nbd => "journal volume NBD",
        })
    }
}

/// All backends, created and filled. Fields are dropped in order: file systems before the daemon
/// that serves them, the folder last.
pub(super) struct Backends {
    ext4: Option<Mounted>,
    devices: Vec<(Backend, PathBuf)>,
    daemon: OwnDaemon,
    folder: DiskFolder,
}

impl Backends {
    pub(super) fn new(wanted: &[Backend]) -> Result<Self> {
        let folder = DiskFolder::new()?;
        let daemon = start_daemon(&folder, POOL_BYTES)?;
        let mut backends = Self { ext4: None, devices: Vec::new(), daemon, folder };
        for &backend in wanted {
            backends.make(backend).with_context(|| format!("cannot make {backend}"))?;
        }
        Ok(backends)
    }

    /// Creates writers with disjoint ranges.
    pub(super) fn writers(&self, backend: Backend, count: u64) -> Result<Vec<Writer>> {
        (0..count)
            .map(|index| {
                let (storage, share) = self.writer(backend, index)?;
                Ok(Writer { storage, share })
            })
            .collect()
    }

    pub(super) fn daemon(&self) -> &Daemon {
        self.daemon.get()
    }

    fn make(&mut self, backend: Backend) -> Result<()> {
        if backend != Backend::Disk {
            let name = backend.volume();
            let words = format!("volume create {name} --size {VOLUME_BYTES} --durability journal");
            self.daemon().memlane(&words)?;
        }
        match backend {
            Backend::Disk => std::fs::create_dir(self.folder.path().join("files"))?,
            Backend::Ext4 => {
                let device = attach(self.daemon(), backend.volume())?;
                Tool::new("mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0")
                    .arg(&device)
                    .check()?;
                let folder = self.folder.path().join("mnt");
                self.ext4 = Some(Mounted::new(&device, &folder, "noatime")?);
            }
            Backend::Attached => {
                let device = attach(self.daemon(), backend.volume())?;
                self.devices.push((backend, device));
            }
            Backend::EachFlushed => {
                let device = attach_with(self.daemon(), backend.volume(), "--flush-each-write")?;
                self.devices.push((backend, device));
            }
            Backend::Nbd => {}
        }
        (0..WRITERS_MAX).try_for_each(|index| self.fill(backend, index))
    }

    /// Writes a range once, so that later writes change only data.
    fn fill(&self, backend: Backend, index: u64) -> Result<()> {
        if let Some(path) = self.file(backend, index) {
            File::create(path)?;
        }
        let (mut storage, share) = self.writer(backend, index)?;
        let mut contents = Contents::new(Data::Random, PIECE_BYTES, index);
        for offset_bytes in share.step_by(PIECE_BYTES) {
            ensure!(!Interruption::is_asked_for(), "interrupted while {backend} is filled");
            storage.write(offset_bytes, contents.next())?;
        }
        storage.flush()
    }

    fn writer(&self, backend: Backend, index: u64) -> Result<(Box<dyn Storage>, Range<u64>)> {
        let own = index * SHARE_BYTES..(index + 1) * SHARE_BYTES;
        if let Some(path) = self.file(backend, index) {
            return Ok((Box::new(open(&path)?), 0..SHARE_BYTES));
        }
        let device = || {
            let found = self.devices.iter().find(|(attached, _)| *attached == backend);
            found.map(|(_, device)| &**device).context("the volume was not attached")
        };
        let storage: Box<dyn Storage> = match backend {
            Backend::Nbd => {
                Box::new(NbdClient::connect(&self.daemon().nbd_socket(), backend.volume())?)
            }
            _ => Box::new(open(device()?)?),
        };
        Ok((storage, own))
    }

    /// Returns a writer's own file, if the backend uses files.
    fn file(&self, backend: Backend, index: u64) -> Option<PathBuf> {
        let folder = match backend {
            Backend::Disk => self.folder.path().join("files"),
            Backend::Ext4 => self.ext4.as_ref()?.folder().to_owned(),
            Backend::Attached | Backend::EachFlushed | Backend::Nbd => return None,
        };
        Some(folder.join(format!("writer-{index}")))
    }
}

fn open(path: &Path) -> Result<File> {
    let opened = File::options().read(true).write(true).open(path);
    opened.with_context(|| format!("cannot open {}", path.display()))
}
