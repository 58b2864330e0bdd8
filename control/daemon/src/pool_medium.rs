//! Medium of the pool's file: memory, or a disk that the kernel writes to when it likes.
//!
//! A pool relies on the order of its stores. A file on a disk keeps that order while the kernel
//! runs, and loses it with the power: what is found afterwards is a mixture of older and newer
//! pages, which looks like a pool.

use std::fs::File;
use std::path::Path;

use anyhow::Context;
use rustix::fs::{AtFlags, FsWord, StatxAttributes, StatxFlags};

/// How the kernel names file systems in the answer of `statfs`.
const TMPFS_MAGIC: FsWord = 0x0102_1994;
const HUGETLBFS_MAGIC: FsWord = 0x9584_58F6;

/// Medium of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    Tmpfs,
    Hugetlbfs,
    /// Persistent memory without a cache in between.
    Dax,
    Disk,
}

impl Medium {
    /// Returns whether a loss of power leaves a part of what was written.
    pub(crate) fn loses_writes(self) -> bool {
        self == Self::Disk
    }
}

/// Medium of the file at `path`, now or when it is made.
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

/// Whether files at this place are mapped from persistent memory: by the mount, or by themselves.
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
        // Whatever it is, it is no memory that keeps a pool.
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
