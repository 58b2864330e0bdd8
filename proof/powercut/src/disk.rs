//! The disk as it is seen while it has power.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use storage::{FileInfo, Folder, StorageAction, StorageError, StorageErrorKind};

use crate::fault::{Effect, Fault, Faults};
use crate::folder::SimulatedFolder;
use crate::history::{FileId, FolderId, History, Moment};

pub(crate) const ROOT: FolderId = FolderId(0);

/// A disk in memory. Its clones are the same disk.
#[derive(Clone)]
pub struct Disk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) capacity_bytes: u64,
    pub(crate) history: History,
    pub(crate) files: Vec<FileState>,
    pub(crate) folders: Vec<FolderState>,
    pub(crate) faults: Faults,
}

#[derive(Debug)]
pub(crate) struct FileState {
    /// What it held when the disk got power, or when it was made.
    pub(crate) at_first: Arc<Vec<u8>>,
    pub(crate) contents: Arc<Vec<u8>>,
    /// Names and open handles: without any its room is free.
    pub(crate) name_count: u64,
    pub(crate) handle_count: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct FolderState {
    pub(crate) path: String,
    /// The names when the disk got power.
    pub(crate) at_first: BTreeMap<String, FileId>,
    pub(crate) names: BTreeMap<String, FileId>,
    pub(crate) folders: BTreeMap<String, FolderId>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Disk").field("files", &state.files.len()).finish_non_exhaustive()
    }
}

impl Disk {
    /// An empty disk with room for `capacity_bytes` in files.
    pub fn new(capacity_bytes: u64) -> Self {
        Self::from_state(State {
            capacity_bytes,
            history: History::default(),
            files: Vec::new(),
            folders: vec![FolderState::new(String::new())],
            faults: Faults::default(),
        })
    }

    pub(crate) fn from_state(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The outermost folder.
    pub fn folder(&self) -> Arc<dyn Folder> {
        Arc::new(SimulatedFolder::new(self.clone(), ROOT))
    }

    /// The present end of the history.
    pub fn now(&self) -> Moment {
        self.state().history.now()
    }

    /// Makes calls go wrong, besides those that already do.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.add(fault);
    }

    /// No call goes wrong any more. What waits at a gate still waits.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// Makes the disk larger or smaller; what it holds stays.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.state().capacity_bytes = capacity_bytes;
    }

    /// All files, each with its path from the outermost folder, `packs/7`.
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

    /// What a file holds, past all faults; `path` is as [`Disk::files`] says it.
    pub fn contents(&self, path: &str) -> Vec<u8> {
        let state = self.state();
        state.files[state.find(path).0].contents.to_vec()
    }

    /// Flips one bit of a file, as decay does: no call tells of it.
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
        // A test that failed in another thread says so itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happens to a call of `action`; waits here if it is held up.
    pub(crate) fn strike(&self, action: StorageAction, name: &str) -> Result<(), StorageError> {
        let effect = self.state().faults.strike(action);
        match effect {
            None => Ok(()),
            Some(Effect::Io) => Err(failed(rustix::io::Errno::IO, action, name)),
            Some(Effect::NoSpace) => Err(failed(rustix::io::Errno::NOSPC, action, name)),
            Some(Effect::Hold(gate)) => {
                gate.pass();
                Ok(())
            }
        }
    }
}

impl State {
    pub(crate) fn free_bytes(&self) -> u64 {
        let is_used = |file: &&FileState| file.name_count + file.handle_count > 0;
        let used: u64 =
            self.files.iter().filter(is_used).map(|file| file.contents.len() as u64).sum();
        self.capacity_bytes.saturating_sub(used)
    }

    pub(crate) fn size(&self, id: FileId) -> usize {
        self.files[id.0].contents.len()
    }

    pub(crate) fn at_first(&self, id: FileId) -> Vec<u8> {
        self.files[id.0].at_first.to_vec()
    }

    pub(crate) fn store(&mut self, id: FileId, offset: usize, bytes: &[u8]) {
        let contents = Arc::make_mut(&mut self.files[id.0].contents);
        let end = offset + bytes.len();
        contents.resize(contents.len().max(end), 0);
        contents[offset..end].copy_from_slice(bytes);
    }

    pub(crate) fn add_file(&mut self, contents: Vec<u8>) -> FileId {
        let at_first = Arc::new(contents);
        let contents = Arc::clone(&at_first);
        self.files.push(FileState { at_first, contents, name_count: 0, handle_count: 0 });
        FileId(self.files.len() - 1)
    }

    /// Lets a name of a folder name a file, or none.
    pub(crate) fn set_name(&mut self, folder: FolderId, name: &str, file: Option<FileId>) {
        let names = &mut self.folders[folder.0].names;
        let before = match file {
            Some(id) => names.insert(name.to_owned(), id),
            None => names.remove(name),
        };
        if let Some(id) = before {
            self.files[id.0].name_count -= 1;
        }
        if let Some(id) = file {
            self.files[id.0].name_count += 1;
        }
    }

    fn find(&self, path: &str) -> FileId {
        let found = self
            .folders
            .iter()
            .find_map(|folder| folder.names.get(path.strip_prefix(folder.path.as_str())?).copied());
        found.unwrap_or_else(|| panic!("the disk has no file {path}"))
    }
}

impl FolderState {
    pub(crate) fn new(path: String) -> Self {
        let (at_first, names, folders) = Default::default();
        Self { path, at_first, names, folders }
    }
}

fn failed(errno: rustix::io::Errno, action: StorageAction, name: &str) -> StorageError {
    StorageError::from_io(errno.into(), action, name)
}

/// A disk without room for what is to be written.
pub(crate) fn no_space(action: StorageAction, name: &str) -> StorageError {
    let error = failed(rustix::io::Errno::NOSPC, action, name);
    assert_eq!(error.kind, StorageErrorKind::NoSpace);
    error
}
