//! Loop devices: kernel block devices backed by files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::sys::{
    LO_FLAGS_AUTOCLEAR, LO_FLAGS_DIRECT_IO, LO_FLAGS_PARTSCAN, LO_FLAGS_READ_ONLY, LO_NAME_SIZE,
    LoopConfig, LoopInfo64, loop_clear, loop_configure, loop_control_get_free, loop_get_status,
    loop_set_capacity, loop_set_status,
};

const CONTROL_PATH: &str = "/dev/loop-control";

/// Control device of the loop driver, which allocates loop devices.
#[derive(Debug)]
pub struct LoopControl {
    file: File,
}

impl LoopControl {
    /// Opens the control device. Fails with `NotFound` if the driver is missing or hidden.
    pub fn open() -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(CONTROL_PATH)?;
        Ok(Self { file })
    }

    /// Number of a free device. Another process may bind it first, which [`LoopDevice::bind`]
    /// reports as `ResourceBusy`.
    pub fn free_number(&self) -> io::Result<u32> {
        loop_control_get_free(self.file.as_fd())
    }
}

/// Backing file and settings of a loop device to be bound.
#[derive(Debug)]
pub struct Backing<'file> {
    /// Opened for direct I/O. May be closed as soon as the device is bound.
    pub file: &'file File,
    /// Stored with the device, truncated to 63 bytes. Identifies who bound it.
    pub name: &'file str,
    pub sector_bytes: u32,
    pub partitions: Partitions,
}

/// Partition scan of a device when it is bound. A scan also makes the kernel drop partitions of the
/// former backing file, which may otherwise remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitions {
    /// Scan now. This reads the device before the call returns.
    LookedFor,
    /// The caller must call [`LoopDevice::look_for_partitions`] later.
    LookedForLater,
}

/// Description of a bound device's backing file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopBinding {
    /// Device number of the file's file system, as from `stat`.
    pub file_system: u64,
    pub inode: u64,
    pub direct_io: bool,
    pub is_read_only: bool,
    /// The device covers the whole file, from its first byte to its end.
    pub is_whole: bool,
    /// [`Backing::name`], with invalid UTF-8 replaced.
    pub name: String,
}

/// An opened loop device, bound or not.
#[derive(Debug)]
pub struct LoopDevice {
    file: File,
}

impl LoopDevice {
    pub fn path(number: u32) -> PathBuf {
        PathBuf::from(format!("/dev/loop{number}"))
    }

    /// Opens a device. Creates its device node if it is missing, as in a container with its own
    /// `/dev`.
    pub fn open(number: u32) -> io::Result<Self> {
        Self::open_with(number, 0)
    }

    /// Opens a device exclusively. Fails with `ResourceBusy` while the device is mounted or
    /// otherwise claimed. No process can claim it until it is closed.
    pub fn open_exclusively(number: u32) -> io::Result<Self> {
        Self::open_with(number, libc::O_EXCL)
    }

    fn open_with(number: u32, flags: i32) -> io::Result<Self> {
        let path = Self::path(number);
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags);
        let file = match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_node(number, &path)?;
                options.open(&path)?
            }
            opened => opened?,
        };
        Ok(Self { file })
    }

    /// Binds the device to a file, and requests direct I/O. [`LoopBinding::direct_io`] tells
    /// whether it was granted.
    pub fn bind(&self, backing: &Backing<'_>) -> io::Result<()> {
        let fd = u32::try_from(backing.file.as_raw_fd()).expect("descriptors are not negative");
        let partitions = match backing.partitions {
            Partitions::LookedFor => LO_FLAGS_PARTSCAN,
            Partitions::LookedForLater => 0,
        };
        let mut info = LoopInfo64 { flags: LO_FLAGS_DIRECT_IO | partitions, ..LoopInfo64::EMPTY };
        let name_bytes = backing.name.len().min(LO_NAME_SIZE - 1);
        info.file_name[..name_bytes].copy_from_slice(&backing.name.as_bytes()[..name_bytes]);
        let config = LoopConfig { fd, block_size: backing.sector_bytes, info, reserved: [0; 8] };
        loop_configure(self.file.as_fd(), &config)
    }

    /// Returns the binding of the device, or `None`. Queries the backing file system, and waits for
    /// it.
    pub fn binding(&self) -> io::Result<Option<LoopBinding>> {
        Ok(self.status()?.map(|info| LoopBinding {
            file_system: info.device,
            inode: info.inode,
            direct_io: info.flags & LO_FLAGS_DIRECT_IO != 0,
            is_read_only: info.flags & LO_FLAGS_READ_ONLY != 0,
            is_whole: info.offset == 0 && info.size_limit == 0,
            name: name_in(&info),
        }))
    }

    /// Makes the kernel scan for partitions, unless it has done so, and drop them when the device
    /// is unbound. Reads the device.
    pub fn look_for_partitions(&self) -> io::Result<()> {
        match self.status()? {
            Some(mut info) if info.flags & LO_FLAGS_PARTSCAN == 0 => {
                info.flags |= LO_FLAGS_PARTSCAN;
                loop_set_status(self.file.as_fd(), &info)
            }
            _ => Ok(()),
        }
    }

    /// Updates the size of the device to that of the backing file.
    pub fn update_size(&self) -> io::Result<()> {
        loop_set_capacity(self.file.as_fd())
    }

    /// Unbinds the device immediately if no other process has it open, or else when the last handle
    /// is closed.
    pub fn unbind_when_closed(&self) -> io::Result<()> {
        loop_clear(self.file.as_fd())
    }

    /// Cancels [`LoopDevice::unbind_when_closed`] while others have the device open. Returns
    /// whether the device is still bound.
    pub fn stay_bound(&self) -> io::Result<bool> {
        let Some(mut info) = self.status()? else {
            return Ok(false);
        };
        info.flags &= !LO_FLAGS_AUTOCLEAR;
        loop_set_status(self.file.as_fd(), &info)?;
        Ok(true)
    }

    fn status(&self) -> io::Result<Option<LoopInfo64>> {
        match loop_get_status(self.file.as_fd()) {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            status => status.map(Some),
        }
    }
}

fn name_in(info: &LoopInfo64) -> String {
    let end = info.file_name.iter().position(|&byte| byte == 0).unwrap_or(LO_NAME_SIZE);
    String::from_utf8_lossy(&info.file_name[..end]).into_owned()
}

fn make_node(number: u32, path: &Path) -> io::Result<()> {
    let device = std::fs::read_to_string(format!("/sys/block/loop{number}/dev"))?;
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "no device number in sysfs");
    let (major, minor) = device.trim().split_once(':').ok_or_else(unreadable)?;
    let major = major.parse().map_err(|_| unreadable())?;
    let minor = minor.parse().map_err(|_| unreadable())?;
    let mode = Mode::RUSR | Mode::WUSR;
    match mknodat(CWD, path, FileType::BlockDevice, mode, makedev(major, minor)) {
        Err(error) if error != rustix::io::Errno::EXIST => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    const SIZE_BYTES: u64 = 1 << 20;

    /// Binds any free device to `backing`. `None`, with a message on standard error, if the host
    /// does not allow it.
    fn bind_any(backing: &Backing<'_>) -> Option<(u32, LoopDevice)> {
        let control = match LoopControl::open() {
            Ok(control) => control,
            Err(error) => {
                eprintln!("skipped: no loop devices here ({error})");
                return None;
            }
        };
        // Other processes may bind a free device first.
        (0..100).find_map(|_| {
            let number = control.free_number().expect("the kernel makes more devices");
            let device = LoopDevice::open(number).expect("the device exists");
            device.bind(backing).ok().map(|()| (number, device))
        })
    }

    fn backing_file() -> File {
        let path = std::env::temp_dir().join(format!("loop-test-{}", std::process::id()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .expect("the temporary directory is writable");
        std::fs::remove_file(&path).expect("the file was just made");
        file.set_len(SIZE_BYTES).expect("the file can grow");
        file
    }

    #[test]
    fn a_device_is_bound_and_unbound() {
        let file = backing_file();
        let partitions = Partitions::LookedForLater;
        let backing = Backing { file: &file, name: "test", sector_bytes: 512, partitions };
        let Some((number, device)) = bind_any(&backing) else { return };
        let binding = device.binding().expect("a bound device answers").expect("it is bound");
        let metadata = file.metadata().expect("the file is open");
        assert_eq!((binding.file_system, binding.inode), (metadata.dev(), metadata.ino()));
        assert_eq!((binding.is_whole, binding.is_read_only, &*binding.name), (true, false, "test"));

        file.set_len(SIZE_BYTES * 2).expect("the file can grow");
        device.update_size().expect("a bound device has a size");
        let sectors = std::fs::read_to_string(format!("/sys/block/loop{number}/size"));
        assert_eq!(sectors.expect("sysfs shows it").trim(), (SIZE_BYTES * 2 / 512).to_string());

        let busy = device.bind(&backing).expect_err("it is bound already");
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        let other = LoopDevice::open(number).expect("the device exists");
        device.unbind_when_closed().expect("a bound device can be unbound");
        assert!(device.stay_bound().expect("another handle keeps it bound"));
        drop(other);
        device.unbind_when_closed().expect("a bound device can be unbound");
        assert!(!device.stay_bound().expect("the device answers"));
        assert_eq!(device.binding().expect("an unbound device answers"), None);
    }

    #[test]
    fn a_device_that_does_not_exist_is_not_found() {
        let error = LoopDevice::open(1_000_000).expect_err("there are no million devices");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
