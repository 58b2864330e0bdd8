//! Files on tmpfs and on disk, loop devices over them, and a device given by the user.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use system::{Interruption, Tool, device_size_bytes};
use tempfile::TempDir;

use super::Place;
use crate::targets::device::kernel_name;
use crate::targets::target::{
    Access, AfterKill, Backing, Durability, Target, Traits, opens_directly,
};

const TMPFS_MAGIC: i64 = 0x0102_1994;
const BYTES_PER_BLOCK: u64 = 512;

pub(super) const IN_KERNEL_MEMORY: Durability =
    Durability { after_kill: AfterKill::NoServer, survives_power_loss: false };
const ON_DISK: Durability =
    Durability { after_kill: AfterKill::NoServer, survives_power_loss: true };

/// A sparse file in its own folder, removed with it.
pub(super) struct OwnFile {
    folder: TempDir,
}

impl OwnFile {
    pub(super) fn create(place: &Path, size_bytes: u64) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("memlane-bench-").tempdir_in(place);
        let folder =
            folder.with_context(|| format!("cannot create a directory in {}", place.display()))?;
        open_to_all(folder.path())?;
        let own = Self { folder };
        let path = own.path();
        File::create(&path)
            .and_then(|file| file.set_len(size_bytes))
            .with_context(|| format!("cannot make {}", path.display()))?;
        Ok(own)
    }

    pub(super) fn on_tmpfs(size_bytes: u64) -> Result<Self> {
        let place = Path::new("/dev/shm");
        ensure!(is_tmpfs(place)?, "/dev/shm is no tmpfs");
        Self::create(place, size_bytes)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Makes a folder accessible to users other than root, because PostgreSQL does not run as root.
pub(super) fn open_to_all(folder: &Path) -> Result<()> {
    rustix::fs::chmod(folder, rustix::fs::Mode::from_raw_mode(0o755))
        .with_context(|| format!("cannot make {} accessible to all users", folder.display()))
}

impl Backing for OwnFile {
    fn used_bytes(&self) -> Result<Option<u64>> {
        let data =
            fs::metadata(self.path()).context("cannot read the size of the target's file")?;
        Ok(Some(data.blocks() * BYTES_PER_BLOCK))
    }
}

pub(super) fn tmpfs(size_bytes: u64) -> Result<(Traits, Box<dyn Backing>)> {
    let file = OwnFile::on_tmpfs(size_bytes)?;
    let path = file.path();
    let access = Access::File { direct: opens_directly(&path), path };
    let traits = Traits { access, durability: IN_KERNEL_MEMORY, reduces: false, device: None };
    Ok((traits, Box::new(file)))
}

pub(super) fn on_disk(place: &Path, size_bytes: u64) -> Result<(Traits, Box<dyn Backing>)> {
    let file = OwnFile::create(place, size_bytes)?;
    let path = file.path();
    let device = device_below(&path);
    let access = Access::File { direct: opens_directly(&path), path };
    let durability = if is_tmpfs(place)? { IN_KERNEL_MEMORY } else { ON_DISK };
    Ok((Traits { access, durability, reduces: false, device }, Box::new(file)))
}

/// Returns the reason why there is no disk for comparison, or `None`.
pub(super) fn missing_disk(place: &Path) -> Option<String> {
    match is_tmpfs(place) {
        Ok(false) => None,
        Ok(true) => Some(format!("{} is in memory, no disk", place.display())),
        Err(error) => Some(format!("{error:#}")),
    }
}

fn is_tmpfs(place: &Path) -> Result<bool> {
    let found = rustix::fs::statfs(place)
        .with_context(|| format!("cannot determine the file system of {}", place.display()))?;
    Ok(found.f_type == TMPFS_MAGIC)
}

/// Returns the whole device below the file's file system, if the kernel has statistics for it.
fn device_below(path: &Path) -> Option<String> {
    let number = fs::metadata(path).ok()?.dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let real = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let whole = if real.join("partition").exists() { real.parent()? } else { &real };
    Some(whole.file_name()?.to_string_lossy().into_owned())
}

/// A loop device, detached when dropped.
struct LoopDevice {
    device: PathBuf,
    file: OwnFile,
}

pub(super) fn loop_over_tmpfs(place: &Place) -> Result<(Traits, Box<dyn Backing>)> {
    loop_over(OwnFile::on_tmpfs(place.size_bytes)?, place.sector_bytes, IN_KERNEL_MEMORY)
}

pub(super) fn loop_over_disk(place: &Place) -> Result<(Traits, Box<dyn Backing>)> {
    let file = OwnFile::create(&place.disk_folder, place.size_bytes)?;
    loop_over(file, place.sector_bytes, ON_DISK)
}

fn loop_over(
    file: OwnFile,
    sector_bytes: u32,
    durability: Durability,
) -> Result<(Traits, Box<dyn Backing>)> {
    let printed = Tool::new("losetup --direct-io=on --find --show --sector-size")
        .arg(sector_bytes.to_string())
        .arg(file.path())
        .check()?;
    let device = PathBuf::from(printed.trim());
    let own = LoopDevice { device: device.clone(), file };
    let name = kernel_name(&device)?;
    let traits = Traits {
        access: Access::File { path: device, direct: true },
        durability,
        reduces: false,
        device: Some(name),
    };
    Ok((traits, Box::new(own)))
}

impl Backing for LoopDevice {
    fn used_bytes(&self) -> Result<Option<u64>> {
        self.file.used_bytes()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _cleaning_up = Interruption::begin_to_clean_up();
        if let Err(error) = Tool::new("losetup --detach").arg(&self.device).check() {
            eprintln!("cannot remove {}: {error:#}", self.device.display());
        }
    }
}

/// A device given by the user. It is kept, but its contents are not.
struct Destroyed;

impl Backing for Destroyed {}

/// Creates a target on the start of a device that was checked to be free.
pub(super) fn destroyed(device: &Path, size_bytes: u64) -> Result<Target> {
    let whole_bytes = device_size_bytes(device)?;
    let traits = Traits {
        access: Access::File { path: device.to_owned(), direct: true },
        durability: ON_DISK,
        reduces: false,
        device: Some(kernel_name(device)?),
    };
    let size_bytes = size_bytes.min(whole_bytes >> 20 << 20);
    ensure!(size_bytes > 0, "{} has only {whole_bytes} bytes", device.display());
    Ok(Target::new(device.display().to_string(), size_bytes, traits, Box::new(Destroyed)))
}
