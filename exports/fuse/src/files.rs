//! The volumes that this export shows, as their owner provides them.

use std::sync::Arc;
use std::time::Duration;

use block_device::BlockDevice;

/// Id of a volume, never reused, and the same after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// Node numbers below this one have meanings of their own: none, and the root directory.
const NODE_FIRST: u64 = 2;

impl FileId {
    /// The number of the file in the kernel's eyes, as node and as inode.
    pub(crate) fn node(self) -> u64 {
        self.0 + NODE_FIRST
    }

    pub(crate) fn of_node(node: u64) -> Option<Self> {
        node.checked_sub(NODE_FIRST).map(Self)
    }

    /// Id of the file with this inode number, if it can be that of a volume.
    pub fn of_inode(inode: u64) -> Option<Self> {
        Self::of_node(inode)
    }
}

/// One volume in the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    pub id: FileId,
    /// Name of the file. Names that cannot be file names are left out of the directory.
    pub name: String,
}

/// Attributes of a file that programs look at, beside its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileState {
    /// Bytes that are not in holes.
    pub data_bytes: u64,
    /// Time of the last change of contents, since 1970.
    pub modified: Duration,
}

/// The volumes that are shown as files. Called by several threads at once.
pub trait Files: Send + Sync {
    fn by_name(&self, name: &str) -> Option<(FileId, Arc<dyn BlockDevice>)>;

    /// Called for every request: may neither wait nor need memory.
    fn by_id(&self, id: FileId) -> Option<Arc<dyn BlockDevice>>;

    /// Asked when somebody looks at a file.
    fn state(&self, id: FileId) -> FileState;

    /// Whether something has the volume for itself, so that others may open its file only to read.
    fn is_taken(&self, _id: FileId) -> bool {
        false
    }

    fn list(&self) -> Vec<FileEntry>;
}

/// Returns whether a volume of this name can be shown as a file.
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
