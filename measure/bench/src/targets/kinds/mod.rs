//! Kinds of targets by name: their set-up, and their requirements on this host.

mod file_system;
mod files;
mod kernel;
mod memlane;
mod servers;

use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use system::{Ability, missing};

pub use memlane::{daemon_counts, missing_programs};
use servers::Threads;

use crate::targets::device::check_is_free;
use crate::targets::fio;
use crate::targets::measure::calibrate;
use crate::targets::target::{Access, Backing, Target, Traits};

/// Kind of target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A volume attached as a block device.
    Volume,
    /// A volume of class `journal` attached as a block device, with its journal on the disk.
    VolumeJournal,
    /// The volume's FUSE file, served by the daemon.
    VolumeFile,
    /// The attached volume, accessed by programs started with `memlane run`.
    VolumeRun,
    VolumeNbd,
    /// The volume as a vhost-user disk of virtual machines.
    VolumeVhost,
    Zram,
    Tmpfs,
    Loop,
    LoopDisk,
    Nbdkit,
    QemuNbd,
    QemuExportNbd,
    QemuExportFuse,
    QemuExportVhost,
    /// With a separate I/O thread.
    QemuExportVhostThread,
    /// With a separate I/O thread and io_uring.
    QemuExportVhostUring,
    Brd,
    NullBlk,
    Disk,
    /// Requests that are discarded: the limit of the generator itself.
    Null,
    /// A folder for a file, or a block device that may be overwritten.
    Path(PathBuf),
}

/// Command line names, and names in reports.
const NAMES: &[(Kind, &str, &str)] = &[
    (Kind::Volume, "volume", "volume attached"),
    (Kind::VolumeJournal, "journal", "journal volume attached"),
    (Kind::VolumeFile, "fuse", "volume FUSE file"),
    (Kind::VolumeRun, "run", "volume, memlane run"),
    (Kind::VolumeNbd, "nbd", "volume NBD"),
    (Kind::VolumeVhost, "vhost-user", "volume vhost-user-blk"),
    (Kind::Zram, "zram", "zram lz4"),
    (Kind::Tmpfs, "tmpfs", "tmpfs file"),
    (Kind::Loop, "loop", "loop over tmpfs"),
    (Kind::LoopDisk, "loop-disk", "loop over disk"),
    (Kind::Nbdkit, "nbdkit", "nbdkit memory"),
    (Kind::QemuNbd, "qemu-nbd", "qemu-nbd over tmpfs"),
    (Kind::QemuExportNbd, "qsd-nbd", "QEMU NBD export over tmpfs"),
    (Kind::QemuExportFuse, "qsd-fuse", "QEMU FUSE export over tmpfs"),
    (Kind::QemuExportVhost, "qsd-vhost", "QEMU vhost-user-blk over tmpfs"),
    (
        Kind::QemuExportVhostThread,
        "qsd-vhost-iothread",
        "QEMU vhost-user-blk, iothread, over tmpfs",
    ),
    (
        Kind::QemuExportVhostUring,
        "qsd-vhost-io_uring",
        "QEMU vhost-user-blk, iothread, io_uring, over tmpfs",
    ),
    (Kind::Brd, "brd", "brd"),
    (Kind::NullBlk, "null_blk", "null_blk in memory"),
    (Kind::Disk, "disk", "disk file"),
    (Kind::Null, "null", "fio null engine"),
];

impl Kind {
    /// Returns whether it can contain a file system: a block device, not a file or protocol.
    pub fn is_block_device(&self) -> bool {
        match self {
            Self::Volume | Self::VolumeJournal | Self::Zram | Self::Loop | Self::LoopDisk => true,
            Self::Brd | Self::NullBlk => true,
            Self::Path(path) => is_block_device(path),
            _ => false,
        }
    }

    /// Returns the requirements besides fio.
    fn needs(&self) -> &'static [Ability] {
        match self {
            Self::Volume | Self::VolumeJournal | Self::VolumeFile | Self::VolumeRun => {
                &[Ability::BlockDevices]
            }
            Self::Loop | Self::LoopDisk => &[Ability::BlockDevices],
            Self::Zram => &[Ability::Zram],
            Self::Nbdkit => &[Ability::Program("nbdkit")],
            Self::QemuNbd => &[Ability::Program("qemu-nbd")],
            Self::QemuExportFuse => {
                &[Ability::BlockDevices, Ability::Program("qemu-storage-daemon")]
            }
            Self::QemuExportNbd
            | Self::QemuExportVhost
            | Self::QemuExportVhostThread
            | Self::QemuExportVhostUring => &[Ability::Program("qemu-storage-daemon")],
            Self::Path(_) => &[Ability::Program("wipefs"), Ability::Program("blkid")],
            Self::VolumeNbd | Self::VolumeVhost | Self::Tmpfs | Self::Disk | Self::Null => &[],
            Self::Brd | Self::NullBlk => &[],
        }
    }

    fn is_volume(&self) -> bool {
        let is_attached = matches!(self, Self::Volume | Self::VolumeJournal);
        let is_reached = matches!(self, Self::VolumeFile | Self::VolumeRun | Self::VolumeNbd);
        is_attached || is_reached || *self == Self::VolumeVhost
    }

    /// Returns whether it is a vhost-user disk of virtual machines.
    pub(crate) fn is_vhost_user(&self) -> bool {
        let is_qemu = matches!(
            self,
            Self::QemuExportVhost | Self::QemuExportVhostThread | Self::QemuExportVhostUring
        );
        is_qemu || *self == Self::VolumeVhost
    }

    fn is_nbd(&self) -> bool {
        matches!(self, Self::VolumeNbd | Self::Nbdkit | Self::QemuNbd | Self::QemuExportNbd)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, NAMES.iter().find(|(kind, ..)| kind == self)) {
            (_, Some((.., name))) => f.write_str(name),
            (Self::Path(path), None) => write!(f, "{}", path.display()),
            (_, None) => write!(f, "{self:?}"),
        }
    }
}

impl FromStr for Kind {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> Result<Self> {
        if let Some((kind, ..)) = NAMES.iter().find(|(_, name, _)| *name == word) {
            return Ok(kind.clone());
        }
        if word.contains('/') {
            return Ok(Self::Path(PathBuf::from(word)));
        }
        let names: Vec<_> = NAMES.iter().map(|(_, name, _)| *name).collect();
        bail!("unknown target {word:?}; use {}, or a path with a slash", names.join(", "))
    }
}

/// Layout on a block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layout {
    #[default]
    Raw,
    /// A file on ext4.
    Ext4,
}

/// A target that is not set up yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spec {
    pub kind: Kind,
    pub layout: Layout,
}

impl From<Kind> for Spec {
    fn from(kind: Kind) -> Self {
        Self { kind, layout: Layout::Raw }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layout {
            Layout::Raw => write!(f, "{}", self.kind),
            Layout::Ext4 => write!(f, "{} + ext4", self.kind),
        }
    }
}

/// Sizes of targets, and the location of those on disk.
#[derive(Clone, Debug)]
pub struct Place {
    pub size_bytes: u64,
    pub disk_folder: PathBuf,
    /// Device that may be overwritten.
    pub destroy: Option<PathBuf>,
    /// Logical sector size of configurable devices: 512 or 4096.
    pub sector_bytes: u32,
}

impl Place {
    pub fn new(size_bytes: u64, destroy: Option<PathBuf>) -> Self {
        let disk_folder = PathBuf::from("/var/tmp");
        Self { size_bytes, disk_folder, destroy, sector_bytes: 4096 }
    }
}

impl Spec {
    /// Returns the reason why fio cannot measure it here, or `None`.
    pub fn missing(&self, place: &Place) -> Option<String> {
        if let Some(reason) = missing(&[Ability::Program("fio")]) {
            return Some(reason);
        }
        let engine = match &self.kind {
            kind if kind.is_vhost_user() => missing_engine("libblkio"),
            kind if kind.is_nbd() => missing_engine("nbd"),
            _ => None,
        };
        engine.or_else(|| self.missing_for_any(place))
    }

    /// Returns the reason why it cannot be set up here for any generator, or `None`.
    pub(crate) fn missing_for_any(&self, place: &Place) -> Option<String> {
        if let Some(reason) = missing(self.kind.needs()) {
            return Some(reason);
        }
        if self.layout == Layout::Ext4 {
            let needed = [Ability::BlockDevices, Ability::Program("mkfs.ext4")];
            if let Some(reason) = missing(&needed) {
                return Some(reason);
            }
            if !self.kind.is_block_device() {
                return Some(format!("{} does not support file systems", self.kind));
            }
        }
        if self.kind.is_volume()
            && let Some(reason) = memlane::missing_programs()
        {
            return Some(reason);
        }
        match &self.kind {
            Kind::Brd => kernel::missing_module("brd"),
            Kind::NullBlk => kernel::missing_module("null_blk"),
            Kind::Disk | Kind::LoopDisk | Kind::VolumeJournal => {
                files::missing_disk(&place.disk_folder)
            }
            Kind::Path(path) => check_path(path, place).err().map(|error| format!("{error:#}")),
            _ => None,
        }
    }

    /// Returns its memory when full of incompressible data.
    pub fn memory_bytes(&self, place: &Place) -> u64 {
        match self.kind {
            ref kind if kind.is_volume() => memlane::pool_bytes(place.size_bytes),
            Kind::Disk | Kind::LoopDisk | Kind::Null | Kind::Path(_) => 0,
            // Includes maps and partially filled units.
            _ => place.size_bytes + place.size_bytes / 16,
        }
    }

    /// Sets up the target.
    pub fn open(&self, place: &Place) -> Result<Target> {
        let target =
            open_kind(&self.kind, place).with_context(|| format!("cannot set up {}", self.kind))?;
        match self.layout {
            Layout::Raw => Ok(target),
            Layout::Ext4 => {
                // Calibrated below the file system, whose own requests would be counted too.
                let is_exact = calibrate(&target)?;
                let on_it = file_system::ext4_on(target, self.to_string())
                    .with_context(|| format!("cannot set up {self}"))?;
                if let Some(is_exact) = is_exact {
                    on_it.note_calibration(is_exact);
                }
                Ok(on_it)
            }
        }
    }
}

fn open_kind(kind: &Kind, place: &Place) -> Result<Target> {
    let size_bytes = place.size_bytes;
    let (traits, backing) = match kind {
        Kind::Volume => memlane::attached(place)?,
        Kind::VolumeJournal => memlane::attached_durable(place)?,
        Kind::VolumeFile => memlane::file(place)?,
        Kind::VolumeRun => memlane::run(place)?,
        Kind::VolumeNbd => memlane::nbd(place)?,
        Kind::VolumeVhost => memlane::vhost_user(place)?,
        Kind::Zram => kernel::zram(size_bytes)?,
        Kind::Brd => kernel::brd(size_bytes)?,
        Kind::NullBlk => kernel::null_blk(size_bytes)?,
        Kind::Tmpfs => files::tmpfs(size_bytes)?,
        Kind::Loop => files::loop_over_tmpfs(place)?,
        Kind::Disk => files::on_disk(&place.disk_folder, size_bytes)?,
        Kind::LoopDisk => files::loop_over_disk(place)?,
        Kind::Nbdkit => servers::nbdkit(size_bytes)?,
        Kind::QemuNbd => servers::qemu_nbd(size_bytes)?,
        Kind::QemuExportNbd => servers::qemu_export_nbd(size_bytes)?,
        Kind::QemuExportFuse => servers::qemu_export_fuse(size_bytes)?,
        Kind::QemuExportVhost => servers::qemu_export_vhost(size_bytes, Threads::Main)?,
        Kind::QemuExportVhostThread => servers::qemu_export_vhost(size_bytes, Threads::Own)?,
        Kind::QemuExportVhostUring => servers::qemu_export_vhost(size_bytes, Threads::OwnUring)?,
        Kind::Null => nothing(),
        Kind::Path(path) => {
            check_path(path, place)?;
            match is_block_device(path) {
                true => return files::destroyed(path, size_bytes),
                false => files::on_disk(path, size_bytes)?,
            }
        }
    };
    Ok(Target::new(kind.to_string(), size_bytes, traits, backing))
}

/// Checks a path. A folder may be used, but a device only if the user permitted its destruction and
/// it is empty.
fn check_path(path: &Path, place: &Place) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let shown = path.display();
    ensure!(is_block_device(path), "{shown} is neither a directory nor a block device");
    let is_named = place.destroy.as_deref() == Some(path);
    ensure!(
        is_named,
        "the contents of {shown} would be destroyed; to permit that, add --destroy {shown}"
    );
    check_is_free(path)
}

fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.file_type().is_block_device())
}

fn missing_engine(engine: &str) -> Option<String> {
    match fio::engines() {
        Err(error) => Some(format!("{error:#}")),
        Ok(engines) if engines.iter().any(|it| it == engine) => None,
        Ok(_) => Some(format!("this fio has no engine {engine}, which would be its client")),
    }
}

struct Nothing;

impl Backing for Nothing {}

fn nothing() -> (Traits, Box<dyn Backing>) {
    let durability = files::IN_KERNEL_MEMORY;
    let traits = Traits { access: Access::Nothing, durability, reduces: false, device: None };
    (traits, Box::new(Nothing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_command_line_is_read() -> Result<()> {
        for (kind, word, _) in NAMES {
            assert_eq!(word.parse::<Kind>()?, *kind);
        }
        assert_eq!("/srv".parse::<Kind>()?, Kind::Path(PathBuf::from("/srv")));
        let error = "floppy".parse::<Kind>().expect_err("there is none");
        assert!(error.to_string().contains("zram"), "{error}");
        Ok(())
    }

    #[test]
    fn a_protocol_carries_no_file_system() {
        let place = Place::new(1 << 20, None);
        let spec = Spec { kind: Kind::Tmpfs, layout: Layout::Ext4 };
        assert!(spec.missing(&place).is_some());
    }

    #[test]
    fn a_path_that_is_neither_folder_nor_device_is_refused() {
        let place = Place::new(1 << 20, None);
        let error = Spec::from(Kind::Path(PathBuf::from("/proc/self/exe"))).open(&place).err();
        let text = format!("{:#}", error.expect("it is a file"));
        assert!(text.contains("neither a directory nor a block device"), "{text}");
    }
}
