//! File systems of volumes: made on what was never written, and on nothing else.
//!
//! The daemon knows whether a volume was ever written. A file system that is being made is noted
//! there first, so that one whose making was broken off is made anew, and no other is.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use api::{Volume, VolumePatch};
use tonic::Status;

use super::programs::{Held, failed};
use crate::class::Filesystem;
use crate::driver::Driver;

/// The label of a volume whose file system is being made.
const MAKING_LABEL: &str = "csi/making";

/// The first bytes of an XFS, and two bytes at an offset of an ext4.
const XFS_MAGIC: &[u8] = b"XFSB";
const EXT4_MAGIC: [u8; 2] = [0x53, 0xef];
const EXT4_MAGIC_OFFSET: usize = 1024 + 56;
const SUPERBLOCK_BYTES: usize = 2048;

/// The number with which e2fsck ends when it mended something and all is well.
const E2FSCK_MENDED: i32 = 1;

/// The flag of an ext4 whose count of blocks has an upper half.
const EXT4_64_BITS: u64 = 0x80;

impl Driver {
    /// Makes the file system on the device of a volume that has none.
    ///
    /// # Errors
    /// The volume holds something else.
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
        // Nothing may come after the note that it is there.
        super::write_back(device)?;
        self.note_making(name, "")
    }

    fn note_making(&self, name: &str, word: &str) -> Result<(), Status> {
        let labels = BTreeMap::from([(MAKING_LABEL.to_owned(), word.to_owned())]);
        self.daemon.change(name, &VolumePatch { labels, ..VolumePatch::default() }).map(drop)
    }
}

/// A file system as its first block describes it.
struct Found {
    filesystem: Filesystem,
    size_bytes: u64,
}

/// The file system that a device holds, of those that are known.
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

/// Behind the magic: the size of a block and the count of them, the largest byte first.
fn xfs_bytes(start: &[u8; SUPERBLOCK_BYTES]) -> u64 {
    let block_bytes = u32::from_be_bytes(field(start, 4));
    u64::from_be_bytes(field(start, 8)).saturating_mul(u64::from(block_bytes))
}

/// The count of blocks in two halves, of which old ones have the first alone, and the power of two
/// of a block's size in KiB.
fn ext4_bytes(start: &[u8; SUPERBLOCK_BYTES]) -> u64 {
    let number = |offset: usize| u64::from(u32::from_le_bytes(field(start, 1024 + offset)));
    let upper = if number(96) & EXT4_64_BITS == 0 { 0 } else { number(336) };
    let blocks = upper << 32 | number(4);
    blocks.saturating_mul(1024 << number(24).min(6))
}

fn field<const LENGTH: usize>(start: &[u8; SUPERBLOCK_BYTES], offset: usize) -> [u8; LENGTH] {
    start[offset..][..LENGTH].try_into().expect("a range has the length that it was made with")
}

/// Mounts it. A copy of an XFS has the id of the original, which may be mounted too.
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
    // What is deleted gives its memory back.
    options.push("discard");
    options.extend(flags.iter().map(String::as_str));
    let options = options.join(",");
    let point = point.to_string_lossy();
    held.run("mount", ["-t", filesystem.word(), "-o", &options, device, &point])
}

/// Lets a file system that is not mounted have all of its device, where that can be done then: an
/// ext4 is checked first, as after a loss of power.
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

/// The same of one that is mounted.
pub(super) fn grow(held: &Held, volume: &Volume, device: &str, point: &Path) -> Result<(), Status> {
    match found_on(Path::new(device))? {
        Some(found) if found.size_bytes < volume.size_bytes => match found.filesystem {
            Filesystem::Ext4 => held.run("resize2fs", [device]),
            Filesystem::Xfs => held.run("xfs_growfs", [Path::new("-d"), point]),
        },
        _ => Ok(()),
    }
}
