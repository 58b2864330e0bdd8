//! Medium of the pool's file: memory, or a disk with writeback by the kernel.
//!
//! A pool relies on the order of its stores. Writeback to a disk does not preserve that order.
//! After a power loss the file is a mix of older and newer pages that appears to be a valid pool.

use std::fs::File;
use std::path::Path;

use anyhow::Context;
use rustix::fs::{AtFlags, FsWord, StatxAttributes, StatxFlags};

/// File system types in the result of `statfs`.
const TMPFS_MAGIC: FsWord = 0x0102_1994;
const HUGETLBFS_MAGIC: FsWord = 0x9584_58F6;

/// Medium of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    Tmpfs,
    Hugetlbfs,
    /// Persistent memory that is mapped without the page cache.
    Dax,
    Disk,
}

impl Medium {
    /// Returns whether a power loss can leave only some of the writes.
    pub(crate) fn loses_writes(self) -> bool {
        self == Self::Disk
    }
}

/// Medium of the file at `path`, which may not exist yet.
pub(crate) fn of(path: &Path) -> anyhow::Result<Medium> {
    let looked_at = |path: &Path| format!("cannot statfs {}", path.display());
    let dir = path.parent().context("the pool's path has no directory")?;
    let place = if path.exists() { path } else { dir };
    let found = rustix::fs::statfs(place).with_context(|| looked_at(place))?;
    Ok(match found.f_type {
        TMPFS_MAGIC => Medium::Tmpfs,
        HUGETLBFS_MAGIC => Medium::Hugetlbfs,
        _ if is_dax(place)? => Medium::Dax,
        _ => Medium::Disk,
    })
}

/// Returns whether files at this path are mapped directly from persistent memory (DAX), by mount
/// option or by file attribute.
fn is_dax(place: &Path) -> anyhow::Result<bool> {
    let looked_at = || format!("cannot stat {}", place.display());
    let opened = File::open(place).with_context(looked_at)?;
    let flags = StatxFlags::MNT_ID;
    let found =
        rustix::fs::statx(&opened, "", AtFlags::EMPTY_PATH, flags).with_context(looked_at)?;
    if found.stx_attributes.contains(StatxAttributes::DAX) {
        return Ok(true);
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")
        .context("cannot read /proc/self/mountinfo")?;
    Ok(has_dax_option(&mounts, found.stx_mnt_id))
}

fn has_dax_option(mounts: &str, mount_id: u64) -> bool {
    mounts
        .lines()
        .filter(|line| line.split(' ').next().and_then(|id| id.parse().ok()) == Some(mount_id))
        .flat_map(|line| line.split([' ', ',']))
        .any(|option| option == "dax" || option == "dax=always")
}

/// Error text for a pool's file on an unsuitable medium, with advice.
pub(crate) fn refusal(path: &Path) -> String {
    format!(
        "the pool's file {} is on a disk, not in memory: after a power loss the pool would be a \
         mix of older and newer pages, and volumes, also those of class `journal`, would \
         silently return old data. Set pool-path to a path on tmpfs, hugetlbfs or DAX, or leave \
         it out; to accept the risk, set pool-on-disk = true",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tmpfs_is_told_from_a_disk() {
        let there = Path::new("/dev/shm/no-such-pool");
        assert_eq!(of(there).expect("its directory is there"), Medium::Tmpfs);
        // Any file system not known as memory counts as a disk.
        assert_eq!(of(Path::new("/proc/version")).expect("it is there"), Medium::Disk);
    }

    #[test]
    fn dax_is_an_option_of_the_mount() {
        let mounts = "36 35 259:0 / /pmem rw,relatime shared:1 - ext4 /dev/pmem0 rw,dax=always\n\
                      37 35 259:1 / /disk rw,relatime shared:1 - ext4 /dev/sda1 rw,dax=never\n";
        assert!(has_dax_option(mounts, 36));
        assert!(!has_dax_option(mounts, 37) && !has_dax_option(mounts, 35));
    }

    #[test]
    fn a_refusal_says_what_is_lost_and_what_to_do() {
        let text = refusal(Path::new("/var/pool"));
        for part in ["/var/pool", "on a disk", "old data", "pool-on-disk", "tmpfs"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
