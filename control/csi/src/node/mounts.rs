//! Mounts: the kernel's table, unmounting, flushing.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tonic::Status;

use super::programs::{failed, run};

const TABLE: &str = "/proc/self/mountinfo";

/// Maximum number of mounts stacked on one path.
const STACKED_MAX: usize = 65_536;

/// An entry of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) point: PathBuf,
    /// Device of the file system, as `major:minor`.
    pub(super) device: String,
    /// Type of the file system.
    pub(super) kind: String,
    pub(super) is_read_only: bool,
    /// The superblock is read-only, as after a file system error.
    pub(super) is_stopped: bool,
}

impl Mount {
    /// Returns whether a device node can be mounted there. Other mounts are not looked at: a dead
    /// FUSE or NFS mount of the node would block the caller.
    pub(super) fn may_be_device(&self) -> bool {
        ["devtmpfs", "tmpfs"].contains(&self.kind.as_str())
    }
}

/// Lists all mounts. Of those on one path, the topmost comes last.
pub(super) fn mounts() -> Result<Vec<Mount>, Status> {
    let table = fs::read(TABLE).map_err(|error| failed("read", Path::new(TABLE), &error))?;
    let lines = table.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| parsed(line).ok_or_else(|| unreadable(line))).collect()
}

fn unreadable(line: &[u8]) -> Status {
    Status::internal(format!("cannot parse line {:?} of {TABLE}", String::from_utf8_lossy(line)))
}

/// Parses a line such as `36 35 98:0 /root /point rw,noatime master:1 - ext4 /dev/loop0 rw`.
fn parsed(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let is_read_only = |options: &[u8]| options.split(|&byte| byte == b',').any(|it| it == b"ro");
    Some(Mount {
        point: PathBuf::from(std::ffi::OsString::from_vec(unescaped(fields.get(4)?))),
        device: String::from_utf8(fields.get(2)?.to_vec()).ok()?,
        kind: String::from_utf8(fields.get(dash + 1)?.to_vec()).ok()?,
        is_read_only: is_read_only(fields.get(5)?),
        is_stopped: is_read_only(fields.get(dash + 3)?),
    })
}

/// Decodes escapes such as `\040` for a space.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                text.push(byte);
                rest = &behind[3..];
            }
            None => {
                text.push(first);
                rest = behind;
            }
        }
    }
    text
}

/// Resolves the parent of `path`. The last component is not accessed, because a mount there may be
/// dead.
pub(super) fn resolved(path: &Path) -> Result<PathBuf, Status> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Status::invalid_argument(format!("{} is not a mount target", path.display())));
    };
    match fs::canonicalize(parent) {
        Ok(parent) => Ok(parent.join(name)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(failed("find", parent, &error)),
    }
}

/// Returns the topmost mount on a resolved path.
pub(super) fn at(path: &Path) -> Result<Option<Mount>, Status> {
    Ok(mounts()?.into_iter().rfind(|mount| mount.point == path))
}

/// Unmounts everything on a resolved path, including stacked mounts.
pub(super) fn unmount_all(path: &Path) -> Result<(), Status> {
    for _ in 0..STACKED_MAX {
        if at(path)?.is_none() {
            return Ok(());
        }
        run("umount", [path])?;
    }
    Err(Status::internal(format!("too many mounts on {}", path.display())))
}

/// Lazily unmounts everything on a path. For mounts that are dead or in use.
pub(super) fn unmount_stale(path: &Path) -> Result<(), Status> {
    for _ in 0..STACKED_MAX {
        if at(path)?.is_none() {
            return Ok(());
        }
        run("umount", [Path::new("--lazy"), path])?;
    }
    Err(Status::internal(format!("too many mounts on {}", path.display())))
}

/// Returns whether the file system mounted there fails reads.
pub(super) fn is_dead(point: &Path) -> bool {
    fs::read_dir(point).and_then(|mut entries| entries.next().transpose()).is_err()
}

/// Returns the `major:minor` of a block device, or `None` if `path` is none.
pub(super) fn device_at(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok().filter(|found| found.file_type().is_block_device())?;
    let number = found.rdev();
    Some(format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number)))
}

/// Returns the `major:minor` of a volume's device.
pub(super) fn device_number(device: &str) -> Result<String, Status> {
    device_at(Path::new(device)).ok_or_else(|| {
        Status::internal(format!(
            "{device} is not a block device in this container; mount the \
                                  host's /dev"
        ))
    })
}

/// Writes dirty pages of a device and of its file system to the device.
pub(crate) fn write_back(device: &str) -> Result<(), Status> {
    let number = device_number(device)?;
    let flushed = |path: &Path, flush: fn(&File) -> io::Result<()>| {
        File::open(path)
            .and_then(|file| flush(&file))
            .map_err(|error| failed("flush", path, &error))
    };
    if let Some(mount) = mounts()?.iter().find(|mount| mount.device == number) {
        flushed(&mount.point, |file| Ok(rustix::fs::syncfs(file)?))?;
    }
    flushed(Path::new(device), File::sync_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_read_with_blanks_in_its_path() {
        let line =
            br"36 35 7:3 / /mnt/a\040b\134c rw,noatime shared:1 master:2 - ext4 /dev/loop3 ro,x";
        let expected = Mount {
            point: PathBuf::from(r"/mnt/a b\c"),
            device: "7:3".to_owned(),
            kind: "ext4".to_owned(),
            is_read_only: false,
            is_stopped: true,
        };
        assert_eq!(parsed(line), Some(expected));
        assert_eq!(parsed(b"36 35 7:3 / /mnt rw"), None);
        assert!(mounts().expect("the table").iter().any(|mount| mount.point == Path::new("/proc")));
    }

    #[test]
    fn a_path_that_is_not_there_is_mounted_nowhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a/b/c");
        assert_eq!(resolved(&path).expect("any path"), path);
        assert_eq!(at(&path).expect("the table"), None);
        unmount_all(&path).expect("nothing is to be done");
    }
}
