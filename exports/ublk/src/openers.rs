//! Detection of processes that have a device open.
//!
//! The driver stops a device even if it is in use (7.0 or later can refuse), so users are searched
//! first. Mounts and other exclusive owners are detected by an exclusive open, loop devices by
//! their backing files, and others among the descriptors of all processes. Partitions count as
//! their whole device. A process that opens the device between the check and the stop gets errors.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, OFlags, StatxFlags, statx};

use crate::sysfs;

/// Describes a user of the device. `None` if none was found.
pub(crate) fn opener_of(id: u32) -> io::Result<Option<String>> {
    let path = format!("/dev/ublkb{id}");
    let exclusive = OFlags::EXCL.bits().cast_signed();
    match OpenOptions::new().read(true).custom_flags(exclusive).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            return Ok(Some("it is mounted, or used by another device".to_owned()));
        }
        // A stopped device has no users.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let numbers = sysfs::device_numbers(id)?;
    // The kernel itself has the device open for a loop device, without a descriptor or exclusive
    // owner.
    if let Some(name) = loop_device_over(&numbers)? {
        return Ok(Some(format!("it backs /dev/{name}")));
    }
    let processes = fs::read_dir("/proc")?.flatten();
    Ok(processes.into_iter().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        has_open(pid, &numbers).then(|| format!("process {pid}{} has it open", name_of(pid)))
    }))
}

/// Returns whether a process has a device open. A process that exits meanwhile has none.
fn has_open(pid: u32, numbers: &[(u32, u32)]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|entry| {
        let number = block_device_number(&entry.path());
        number.is_some_and(|number| numbers.contains(&number))
    })
}

/// Finds a loop device whose backing file is one of these devices.
fn loop_device_over(numbers: &[(u32, u32)]) -> io::Result<Option<String>> {
    Ok(sysfs::loop_backings()?.into_iter().find_map(|(name, path)| {
        // Other paths may be on a file system that this process serves, and a lookup would wait for
        // itself.
        let number = path.starts_with("/dev").then(|| block_device_number(&path))??;
        numbers.contains(&number).then_some(name)
    }))
}

/// Number of the block device at a path, from cached attributes: a file system that this process
/// serves must not be queried.
fn block_device_number(path: &Path) -> Option<(u32, u32)> {
    let known = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    let is_block = FileType::from_raw_mode(known.stx_mode.into()) == FileType::BlockDevice;
    is_block.then_some((known.stx_rdev_major, known.stx_rdev_minor))
}

fn name_of(pid: u32) -> String {
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!(" ({})", name.trim()),
        Err(_) => String::new(),
    }
}
