//! File systems on volumes: creation, mount and growth. Only volumes without data are formatted.
//!
//! The daemon knows whether a volume was ever written. Before formatting, the driver records it in
//! a label of the volume. If formatting was interrupted, the label permits to repeat it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use api::{Volume, VolumePatch};
use tonic::Status;

use super::programs::{Held, failed};
use crate::class::Filesystem;
use crate::driver::Driver;

/// Label of a volume that is being formatted.
const MAKING_LABEL: &str = "csi/making";

/// Magic of XFS at the start of the device, and of ext4 at an offset.
const XFS_MAGIC: &[u8] = b"XFSB";
const EXT4_MAGIC: [u8; 2] = [0x53, 0xef];
const EXT4_MAGIC_OFFSET: usize = 1024 + 56;
const SUPERBLOCK_BYTES: usize = 2048;

/// Exit code of e2fsck after it corrected all errors.
const E2FSCK_MENDED: i32 = 1;

/// ext4 feature flag `64bit`: the block count has an upper half.
const EXT4_64_BITS: u64 = 0x80;

impl Driver {
    /// Formats the device of a volume that has no file system.
    ///
    /// # Errors
    /// The volume contains other data.
    pub(super) fn make_filesystem(
        &self,
        volume: &Volume,
        device: &str,
        held: &Held,
        wanted: Filesystem,
    ) -> Result<(), Status> {
        let name = &volume.name;
        let is_begun = volume.labels.contains_key(MAKING_LABEL);
        let found = found_on(Path::new(device))?;
        match found {
            Some(found) if found.filesystem == wanted && !is_begun => return Ok(()),
            _ if is_begun || volume.written_bytes == 0 => {}
            Some(found) => {
                return Err(Status::failed_precondition(format!(
                    "volume {name:?} contains {}, but {} is requested; the volume was not \
                     changed",
                    found.filesystem.word(),
                    wanted.word()
                )));
            }
            None => {
                return Err(Status::failed_precondition(format!(
                    "cannot format volume {name:?}: it contains data that is neither ext4 nor \
                     XFS; use volumeMode: Block, or discard its contents first (blkdiscard)"
                )));
            }
        }
        self.note_making(name, wanted.word())?;
        match wanted {
            Filesystem::Ext4 => {
                held.run("mkfs.ext4", ["-q", "-F", "-b", "4096", "-m", "0", device])?
            }
            Filesystem::Xfs => held.run("mkfs.xfs", ["-q", "-f", "-s", "size=4096", device])?,
        }
        // The file system must be durable before the label is removed.
        super::write_back(device)?;
        self.note_making(name, "")
    }

    fn note_making(&self, name: &str, word: &str) -> Result<(), Status> {
        let labels = BTreeMap::from([(MAKING_LABEL.to_owned(), word.to_owned())]);
        self.daemon.change(name, &VolumePatch { labels, ..VolumePatch::default() }).map(drop)
    }
}

/// File system and size, as read from a superblock.
struct Found {
    filesystem: Filesystem,
    size_bytes: u64,
}

/// Detects ext4 or XFS on a device.
fn found_on(device: &Path) -> Result<Option<Found>, Status> {
    let mut start = [0; SUPERBLOCK_BYTES];
    let read = File::open(device).and_then(|file| file.read_exact_at(&mut start, 0));
    read.map_err(|error| failed("read", device, &error))?;
    let is_ext4 = start[EXT4_MAGIC_OFFSET..][..EXT4_MAGIC.len()] == EXT4_MAGIC;
    Ok(match (start.starts_with(XFS_MAGIC), is_ext4) {
        (true, _) => Some(Found { filesystem: Filesystem::Xfs, size_bytes: xfs_bytes(&start) }),
        (false, true) => {
            Some(Found { filesystem: Filesystem::Ext4, size_bytes: ext4_bytes(&start) })
        }
        (false, false) => None,
    })
}

/// Reads an XFS size: block size and block count, big endian, after the magic.
fn xfs_bytes(start: &[u8; SUPERBLOCK_BYTES]) -> u64 {
    let block_bytes = u32::from_be_bytes(field(start, 4));
    u64::from_be_bytes(field(start, 8)).saturating_mul(u64::from(block_bytes))
}

/// Reads an ext4 size: the block count, whose upper half exists only with the `64bit` feature, and
/// the block size as a binary logarithm in KiB.
fn ext4_bytes(start: &[u8; SUPERBLOCK_BYTES]) -> u64 {
    let number = |offset: usize| u64::from(u32::from_le_bytes(field(start, 1024 + offset)));
    let upper = if number(96) & EXT4_64_BITS == 0 { 0 } else { number(336) };
    let blocks = upper << 32 | number(4);
    blocks.saturating_mul(1024 << number(24).min(6))
}

fn field<const LENGTH: usize>(start: &[u8; SUPERBLOCK_BYTES], offset: usize) -> [u8; LENGTH] {
    start[offset..][..LENGTH].try_into().expect("a range has the length that it was made with")
}

/// Mounts a volume. A cloned XFS has the same UUID as its source, which may be mounted as well.
pub(super) fn mount(
    held: &Held,
    filesystem: Filesystem,
    device: &str,
    point: &Path,
    flags: &[String],
) -> Result<(), Status> {
    let mut options: Vec<&str> = match filesystem {
        Filesystem::Ext4 => vec![],
        Filesystem::Xfs => vec!["nouuid"],
    };
    // With `discard`, deleted files release memory.
    options.push("discard");
    options.extend(flags.iter().map(String::as_str));
    let options = options.join(",");
    let point = point.to_string_lossy();
    held.run("mount", ["-t", filesystem.word(), "-o", &options, device, &point])
}

/// Grows an unmounted file system to the size of its device, if its type supports that. ext4 is
/// checked first, as after a power loss.
pub(super) fn grow_unmounted(held: &Held, volume: &Volume, device: &str) -> Result<(), Status> {
    match found_on(Path::new(device))? {
        Some(found)
            if found.filesystem == Filesystem::Ext4 && found.size_bytes < volume.size_bytes =>
        {
            held.check("e2fsck", ["-f", "-p", device], E2FSCK_MENDED)?;
            held.run("resize2fs", [device])
        }
        _ => Ok(()),
    }
}

/// Grows a mounted file system to the size of its device.
pub(super) fn grow(held: &Held, volume: &Volume, device: &str, point: &Path) -> Result<(), Status> {
    match found_on(Path::new(device))? {
        Some(found) if found.size_bytes < volume.size_bytes => match found.filesystem {
            Filesystem::Ext4 => held.run("resize2fs", [device]),
            Filesystem::Xfs => held.run("xfs_growfs", [Path::new("-d"), point]),
        },
        _ => Ok(()),
    }
}
