//! Mounting of a connection, and detection and removal of stale mounts.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

/// Prefix of a mount's source. The connection's identity follows.
const SOURCE: &str = "memlane-";
const FILE_SYSTEM: &str = "fuse.memlane";

/// Mounts `connection` as a directory that only the mounting user may enter. The mount source
/// contains `identity`.
pub(crate) fn mount(
    connection: BorrowedFd<'_>,
    identity: u64,
    mount_point: &Path,
) -> io::Result<()> {
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        connection.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let options = CString::new(options).expect("numbers and names hold no zero byte");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOATIME;
    let source = format!("{SOURCE}{identity:016x}");
    rustix::mount::mount(source, mount_point, FILE_SYSTEM, flags, options.as_c_str())?;
    Ok(())
}

/// Returns whether a file system of this export is mounted on top of `mount_point`, served or not.
/// Reads only the mount table, so it never blocks on a file system.
pub(crate) fn is_mounted(mount_point: &Path) -> io::Result<bool> {
    let table = fs::read("/proc/self/mountinfo")?;
    let topmost = topmost(&table, mount_point);
    Ok(topmost.is_some_and(|(name, _)| name == FILE_SYSTEM.as_bytes()))
}

/// Identity of the connection that is mounted on top of `mount_point`, if its source contains one.
pub(crate) fn identity(mount_point: &Path) -> io::Result<Option<u64>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(identity_in(&table, mount_point))
}

fn identity_in(table: &[u8], mount_point: &Path) -> Option<u64> {
    let (_, source) = topmost(table, mount_point)?;
    let digits = str::from_utf8(source).ok()?.strip_prefix(SOURCE)?;
    u64::from_str_radix(digits, 16).ok()
}

/// Aborts the connection of a mount. Waiting requests fail.
pub(crate) fn abort(mount_point: &Path) -> io::Result<()> {
    match rustix::mount::unmount(mount_point, UnmountFlags::FORCE) {
        // `EBUSY`: the connection was aborted, although a process still has a file open.
        Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Unmounts the file system if it is unused. Open files, loop devices on its files, and processes
/// with their working directory in it count as users. Returns whether it was unmounted.
pub(crate) fn remove_unused(mount_point: &Path) -> io::Result<bool> {
    match rustix::mount::unmount(mount_point, UnmountFlags::empty()) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::BUSY) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Unmounts lazily: open files remain usable as long as they are served.
pub(crate) fn detach(mount_point: &Path) -> io::Result<()> {
    rustix::mount::unmount(mount_point, UnmountFlags::DETACH)?;
    Ok(())
}

/// Type and source of the topmost mount at a path, from the kernel's mount table.
fn topmost<'table>(
    table: &'table [u8],
    mount_point: &Path,
) -> Option<(&'table [u8], &'table [u8])> {
    table.split(|&byte| byte == b'\n').rev().find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let separator = fields.iter().position(|&field| field == b"-")?;
        let place = unescape(fields.get(4)?);
        let (name, source) = (*fields.get(separator + 1)?, *fields.get(separator + 2)?);
        (place == mount_point).then_some((name, source))
    })
}

/// Decodes a field of the mount table, in which special characters are octal escapes.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = after.first_chunk::<3>().filter(|_| byte == b'\\').and_then(octal);
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal(digits: &[u8; 3]) -> Option<u8> {
    let digits = str::from_utf8(digits).ok()?;
    u8::from_str_radix(digits, 8).ok()
}

/// Returns the mount point as in the kernel's tables: absolute and without symbolic links. Creates
/// the directory if it is missing. Does not access the directory itself, which a dead file system
/// may cover.
pub(crate) fn prepare(mount_point: &Path) -> io::Result<PathBuf> {
    let name = mount_point.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = match mount_point.parent() {
        Some(parent) if !parent.as_os_str().as_bytes().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent)?;
    let place = parent.canonicalize()?.join(name);
    if !is_mounted(&place)? {
        fs::create_dir_all(&place)?;
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
        22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        40 22 0:40 / /run/memlane/volumes rw shared:9 master:2 - tmpfs tmpfs rw\n\
        41 40 0:41 / /run/memlane/volumes rw - fuse.memlane memlane rw,user_id=0\n\
        42 22 0:42 / /mnt/a\\040b\\134c rw - fuse.memlane memlane-00000000000000ab rw\n\
        garbage\n";

    #[track_caller]
    fn check(place: &str, expected: Option<&str>) {
        let found = topmost(TABLE, Path::new(place)).map(|(name, _)| name);
        assert_eq!(found, expected.map(str::as_bytes));
    }

    #[test]
    fn what_is_mounted_last_is_on_top() {
        check("/run/memlane/volumes", Some("fuse.memlane"));
        check("/", Some("ext4"));
    }

    #[test]
    fn places_are_unescaped() {
        check("/mnt/a b\\c", Some("fuse.memlane"));
    }

    #[test]
    fn the_source_of_a_mount_has_the_identity_of_its_connection() {
        for (place, expected) in [("/mnt/a b\\c", Some(0xAB)), ("/run/memlane/volumes", None)] {
            assert_eq!(identity_in(TABLE, Path::new(place)), expected);
        }
    }

    #[test]
    fn nothing_is_mounted_elsewhere() {
        check("/run/memlane", None);
        check("", None);
    }

    #[test]
    fn a_missing_mount_point_is_made_and_named_in_full() {
        let base = std::env::temp_dir().join(format!("mount-test-{}", std::process::id()));
        let place = prepare(&base.join("x/../volumes")).expect("the directory is made");
        assert_eq!(place, base.canonicalize().expect("it exists now").join("volumes"));
        assert!(place.is_dir());
        fs::remove_dir_all(base).expect("it was just made");
    }
}
