//! The simulated disk while it has power.

use std::fmt;
use std::sync::{Arc, MutexGuard};

use storage::{FileInfo, Folder, StorageAction, StorageError};

use crate::fault::Fault;
use crate::folder::SimulatedFolder;
use crate::history::{FolderId, Moment};
use crate::objects::Objects;
use crate::state::{SharedState, State};

const ROOT: FolderId = FolderId(0);

/// A disk in memory. Clones refer to the same disk.
#[derive(Clone)]
pub struct Disk {
    shared: SharedState,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Disk").field("files", &state.files.len()).finish_non_exhaustive()
    }
}

impl Disk {
    /// Creates an empty disk with room for `capacity_bytes` in files.
    pub fn new(capacity_bytes: u64) -> Self {
        Self { shared: SharedState::new(capacity_bytes) }
    }

    /// Returns the root folder.
    pub fn folder(&self) -> Arc<dyn Folder> {
        Arc::new(SimulatedFolder::new(self.shared.clone(), ROOT))
    }

    /// Returns objects in a folder of the disk, which is created if it is missing.
    pub fn objects(&self, folder: &str) -> Result<Objects, StorageError> {
        let root = SimulatedFolder::new(self.shared.clone(), ROOT);
        root.subfolder(folder).map(Objects::new)
    }

    /// Returns the current end of the history.
    pub fn now(&self) -> Moment {
        self.state().history.now()
    }

    /// Adds a fault to those that exist.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.add(fault);
    }

    /// Removes all faults. Calls that wait at a gate continue to wait.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// Returns the number of calls of an action so far, failed ones included.
    pub fn calls(&self, action: StorageAction) -> u64 {
        self.state().faults.calls(action)
    }

    /// Changes the capacity of the disk. Its contents stay.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.state().capacity_bytes = capacity_bytes;
    }

    /// Returns all files with their paths from the root folder, such as `packs/7`.
    pub fn files(&self) -> Vec<FileInfo> {
        let state = self.state();
        let mut files = Vec::new();
        for folder in &state.folders {
            for (name, &id) in &folder.names {
                let size_bytes = state.files[id.0].contents.len() as u64;
                files.push(FileInfo { name: format!("{}{name}", folder.path), size_bytes });
            }
        }
        files.sort();
        files
    }

    /// Returns the contents of a file, ignoring faults. `path` has the form of [`Disk::files`].
    pub fn contents(&self, path: &str) -> Vec<u8> {
        let state = self.state();
        state.files[state.find(path).0].contents.to_vec()
    }

    /// Flips one bit of a file silently, like bit rot.
    pub fn flip_bit(&self, path: &str, bit: u64) {
        let mut state = self.state();
        let id = state.find(path);
        let byte = usize::try_from(bit / 8).expect("a byte of a file in memory");
        let file = &mut state.files[id.0];
        for contents in [&mut file.contents, &mut file.at_first] {
            if let Some(byte) = Arc::make_mut(contents).get_mut(byte) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}
