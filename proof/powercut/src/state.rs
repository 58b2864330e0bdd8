//! State shared by all handles of a disk: contents, history and faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use storage::{StorageAction, StorageError, StorageErrorKind};

use crate::fault::{Effect, Faults};
use crate::history::{FileId, FolderId, History};

/// State shared by the disk, its folders and its open files.
#[derive(Clone, Debug)]
pub(crate) struct SharedState(Arc<Mutex<State>>);

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
    /// Contents at power-on, or at creation.
    pub(crate) at_first: Arc<Vec<u8>>,
    pub(crate) contents: Arc<Vec<u8>>,
    /// Number of names and open handles. At zero its space is free.
    pub(crate) name_count: u64,
    pub(crate) handle_count: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct FolderState {
    pub(crate) path: String,
    /// Names at power-on.
    pub(crate) at_first: BTreeMap<String, FileId>,
    pub(crate) names: BTreeMap<String, FileId>,
    pub(crate) folders: BTreeMap<String, FolderId>,
}

impl SharedState {
    /// Creates the state of an empty disk.
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            capacity_bytes,
            history: History::default(),
            files: Vec::new(),
            folders: vec![FolderState::new(String::new())],
            faults: Faults::default(),
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A test that failed in another thread reports that itself.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the effect on the next call of `action`, and waits here at a gate.
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

    /// Sets or removes a name of a folder.
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

    pub(crate) fn find(&self, path: &str) -> FileId {
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

/// Returns the error of a disk without space.
pub(crate) fn no_space(action: StorageAction, name: &str) -> StorageError {
    let error = failed(rustix::io::Errno::NOSPC, action, name);
    assert_eq!(error.kind, StorageErrorKind::NoSpace);
    error
}
