//! Interface to the volumes that this export serves as files.

use std::sync::Arc;
use std::time::Duration;

use block_device::BlockDevice;

/// Id of a volume. It is never reused, and does not change at a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// Node numbers below this one are reserved: zero is invalid, and one is the root directory.
const NODE_FIRST: u64 = 2;

impl FileId {
    /// Node number and inode number of the file.
    pub(crate) fn node(self) -> u64 {
        self.0 + NODE_FIRST
    }

    pub(crate) fn of_node(node: u64) -> Option<Self> {
        node.checked_sub(NODE_FIRST).map(Self)
    }

    /// Id of the volume with this inode number; `None` for reserved numbers.
    pub fn of_inode(inode: u64) -> Option<Self> {
        Self::of_node(inode)
    }
}

/// One volume in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    pub id: FileId,
    /// Name of the file. Names that are not valid file names are omitted from the directory.
    pub name: String,
}

/// Attributes of a file other than its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileState {
    /// Number of bytes outside of holes.
    pub data_bytes: u64,
    /// Modification time of the contents, since 1970.
    pub modified: Duration,
}

/// The volumes that are served as files. Called concurrently.
pub trait Files: Send + Sync {
    fn by_name(&self, name: &str) -> Option<(FileId, Arc<dyn BlockDevice>)>;

    /// Looks up a device. Called for every request, so it must not block or allocate memory.
    fn by_id(&self, id: FileId) -> Option<Arc<dyn BlockDevice>>;

    /// Called when attributes of a file are read.
    fn state(&self, id: FileId) -> FileState;

    /// Returns whether the volume has an exclusive user, so that others may open its file only for
    /// reading.
    fn is_taken(&self, _id: FileId) -> bool {
        false
    }

    fn list(&self) -> Vec<FileEntry>;
}

/// Returns whether a volume of this name can be a file.
pub(crate) fn is_file_name(name: &str) -> bool {
    const NAME_BYTES_MAX: usize = 255;
    let special = matches!(name, "" | "." | "..");
    !special && name.len() <= NAME_BYTES_MAX && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_numbers_lead_back_to_files() {
        assert_eq!(FileId::of_node(FileId(7).node()), Some(FileId(7)));
    }

    #[test]
    fn the_root_directory_is_no_file() {
        assert_eq!(FileId::of_node(1), None);
    }

    #[test]
    fn names_that_the_kernel_would_refuse_are_no_file_names() {
        assert!(is_file_name("db"));
        for name in ["", ".", "..", "a/b", "a\0b", &"n".repeat(256)] {
            assert!(!is_file_name(name), "{name:?}");
        }
    }
}
