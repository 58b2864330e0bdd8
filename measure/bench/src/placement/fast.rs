//! Storage of database parts: suitable targets, sizes, and space used.

use std::path::Path;

use anyhow::{Result, ensure};
use results::placement::Placement;

use crate::targets::{Kind, Layout, Place, Spec, Target};
use crate::tpcc;

/// Size for the log. It may grow to 1 GiB. The rest is for a late checkpoint and the file system.
const LOG_BYTES: u64 = 2 << 30;
/// Size for sort files and merged results.
const TEMPORARY_BYTES_PER_USER: u64 = 192 << 20;
const TEMPORARY_BYTES: u64 = 512 << 20;

/// Size of the database, and maximum number of users.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) warehouses: u32,
    pub(super) users_max: u32,
}

impl Size {
    /// Returns the space for a whole database, including temporary files.
    fn whole_bytes(self) -> u64 {
        tpcc::size_bytes(self.warehouses) + self.temporary_bytes()
    }

    fn temporary_bytes(self) -> u64 {
        TEMPORARY_BYTES + u64::from(self.users_max) * TEMPORARY_BYTES_PER_USER
    }

    /// Returns the space for its part on fast storage.
    pub(super) fn fast_place(self, placement: Placement) -> Place {
        let bytes = match placement {
            Placement::Whole => self.whole_bytes(),
            Placement::Logs => LOG_BYTES,
            Placement::Temporary => self.temporary_bytes(),
            Placement::None => 0,
        };
        Place::new(bytes, None)
    }

    pub(super) fn slow_place(self) -> Place {
        Place::new(self.whole_bytes(), None)
    }
}

/// Parses a target that can contain a database's files while memory is limited.
pub(super) fn spec(word: &str) -> Result<Spec> {
    let kind: Kind = word.parse()?;
    let has_files = kind == Kind::Disk || matches!(&kind, Kind::Path(path) if path.is_dir());
    ensure!(
        !matches!(kind, Kind::Tmpfs | Kind::Loop),
        "files on tmpfs count as the server's memory, which is limited here; use volume, journal \
         or zram instead of {kind}"
    );
    ensure!(has_files || kind.is_block_device(), "{kind} has no file system for a database");
    let layout = if has_files { Layout::Raw } else { Layout::Ext4 };
    Ok(Spec { kind, layout })
}

/// Returns the bytes of the target used by files in the folder.
pub(super) fn used_bytes(target: &Target, spec: &Spec, folder: &Path) -> Result<u64> {
    // A folder target would count its own file.
    let counted = if spec.layout == Layout::Ext4 { target.used_bytes()? } else { None };
    match counted {
        Some(bytes) => Ok(bytes),
        None => tpcc::folder_bytes(folder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(word: &str, reason: &str) {
        let error = spec(word).expect_err("it does not fit");
        assert!(error.to_string().contains(reason), "{error:#}");
    }

    #[test]
    fn what_is_the_servers_own_memory_is_refused() {
        check_refused("tmpfs", "the server's memory");
        check_refused("loop", "the server's memory");
        check_refused("nbd", "has no file system");
        check_refused("floppy", "unknown target");
    }

    #[test]
    fn folders_and_devices_fit() {
        assert_eq!(spec("disk").expect("it is a folder").layout, Layout::Raw);
        assert_eq!(spec("/var/tmp").expect("it is a folder").layout, Layout::Raw);
        for word in ["journal", "volume", "zram", "loop-disk"] {
            assert_eq!(spec(word).expect("it is a device").layout, Layout::Ext4);
        }
    }

    #[test]
    fn parts_take_less_room_than_the_whole() {
        let size = Size { warehouses: 10, users_max: 8 };
        let whole = size.fast_place(Placement::Whole).size_bytes;
        for part in [Placement::Logs, Placement::Temporary] {
            assert!(size.fast_place(part).size_bytes < whole, "{part:?}");
        }
    }
}
