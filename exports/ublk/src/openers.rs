//! Processes that have a device open.
//!
//! The driver stops a device that is in use (one of 7.0 or later can be asked not to), so we look
//! before. Mounts and other owners are found by opening it exclusively, loop devices by what they
//! say they show, all others among the descriptors of all processes. Partitions count as the
//! device that they are parts of. A process that opens it between the look and the stop gets
//! errors.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, OFlags, StatxFlags, statx};

use crate::sysfs;

/// Names what uses the device, or `None` when nothing was found.
pub(crate) fn opener_of(id: u32) -> io::Result<Option<String>> {
    let path = format!("/dev/ublkb{id}");
    let exclusive = OFlags::EXCL.bits().cast_signed();
    match OpenOptions::new().read(true).custom_flags(exclusive).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            return Ok(Some("it is mounted, or used by another device".to_owned()));
        }
        // A device that was stopped has no opener any more.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let numbers = sysfs::device_numbers(id)?;
    // The kernel holds these open: no process has a descriptor, and they are no owners.
    if let Some(name) = loop_device_over(&numbers)? {
        return Ok(Some(format!("/dev/{name} shows it")));
    }
    let processes = fs::read_dir("/proc")?.flatten();
    Ok(processes.into_iter().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        has_open(pid, &numbers).then(|| format!("process {pid}{} has it open", name_of(pid)))
    }))
}

/// Processes that go away meanwhile have nothing open.
fn has_open(pid: u32, numbers: &[(u32, u32)]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|entry| {
        let number = block_device_number(&entry.path());
        number.is_some_and(|number| numbers.contains(&number))
    })
}

/// The loop device that shows one of these devices.
fn loop_device_over(numbers: &[(u32, u32)]) -> io::Result<Option<String>> {
    Ok(sysfs::loop_backings()?.into_iter().find_map(|(name, path)| {
        // Others may lie in a file system that this process serves: to look them up would wait for
        // itself.
        let number = path.starts_with("/dev").then(|| block_device_number(&path))??;
        numbers.contains(&number).then_some(name)
    }))
}

/// The number of the block device that this is or leads to, by what the kernel knows: a file system
/// that this process serves is not asked.
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
