//! The disk's folders and files, as implementations of the traits of `storage`.

use std::io::IoSlice;
use std::sync::Arc;

use storage::{
    BLOCK_BYTES, FileInfo, Folder, StableFile, StorageAction, StorageError, StorageErrorKind,
};

use crate::history::{Deed, FileId, FolderId, NameChanges, Outcome};
use crate::state::{FolderState, SharedState, no_space};

const NAME_BYTES_MAX: usize = 200;

#[derive(Debug)]
pub(crate) struct SimulatedFolder {
    disk: SharedState,
    id: FolderId,
}

/// A file that was created but is not visible yet.
#[derive(Debug)]
pub(crate) struct Sent {
    name: String,
    id: FileId,
    record: usize,
}

/// An open handle, which keeps its file alive.
#[derive(Debug)]
struct SimulatedFile {
    disk: SharedState,
    id: FileId,
    name: String,
}

impl SimulatedFolder {
    pub(crate) fn new(disk: SharedState, id: FolderId) -> Self {
        Self { disk, id }
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}{name}", self.disk.state().folders[self.id.0].path)
    }

    /// Returns the path of a file, if its name is valid.
    fn checked(&self, name: &str, action: StorageAction) -> Result<String, StorageError> {
        let path = self.path_of(name);
        let is_valid = (1..=NAME_BYTES_MAX).contains(&name.len())
            && !name.starts_with('.')
            && !name.contains(['/', '\0']);
        if is_valid { Ok(path) } else { Err(invalid("no name of a file", action, path)) }
    }

    /// Same, unless a fault applies.
    fn admit(&self, name: &str, action: StorageAction) -> Result<String, StorageError> {
        let path = self.checked(name, action)?;
        self.disk.strike(action, &path)?;
        Ok(path)
    }

    fn file_of(&self, name: &str, action: StorageAction) -> Result<FileId, StorageError> {
        let found = self.disk.state().folders[self.id.0].names.get(name).copied();
        let missing = || StorageError::new(StorageErrorKind::NotFound, action, self.path_of(name));
        found.ok_or_else(missing)
    }

    /// Changes names, in one operation that is briefly in progress.
    fn change_names(&self, changes: NameChanges, outcome: Outcome) {
        let deed = Deed::Names { folder: self.id, changes: changes.clone() };
        let record = self.disk.state().history.begin(deed);
        let mut state = self.disk.state();
        for (name, file) in changes {
            state.set_name(self.id, &name, file);
        }
        state.history.end(record, outcome);
    }

    /// Begins to create a file, which is not visible yet: a power failure keeps it or not.
    pub(crate) fn send(&self, name: &str, contents: Vec<u8>) -> Sent {
        let mut state = self.disk.state();
        let id = state.add_file(contents);
        let changes = vec![(name.to_owned(), Some(id))];
        let record = state.history.begin(Deed::Names { folder: self.id, changes });
        Sent { name: name.to_owned(), id, record }
    }

    /// Makes the file visible and durable.
    pub(crate) fn arrive(&self, sent: &Sent) {
        let mut state = self.disk.state();
        state.set_name(self.id, &sent.name, Some(sent.id));
        state.history.end(sent.record, Outcome::DoneDurably);
    }

    /// Removes a file, durably on return.
    pub(crate) fn remove_durably(&self, name: &str) -> Result<(), StorageError> {
        self.admit(name, StorageAction::Remove)?;
        self.file_of(name, StorageAction::Remove)?;
        self.change_names(vec![(name.to_owned(), None)], Outcome::DoneDurably);
        Ok(())
    }

    /// Returns the folder of this name, which is created if it is missing.
    pub(crate) fn subfolder(&self, name: &str) -> Result<Self, StorageError> {
        let path = self.admit(name, StorageAction::OpenFolder)?;
        let mut state = self.disk.state();
        if state.folders[self.id.0].names.contains_key(name) {
            let why = "a file was expected and a directory found, or the reverse";
            return Err(invalid(why, StorageAction::OpenFolder, path));
        }
        let next = FolderId(state.folders.len());
        let id = *state.folders[self.id.0].folders.entry(name.to_owned()).or_insert(next);
        if id == next {
            state.folders.push(FolderState::new(format!("{path}/")));
        }
        drop(state);
        Ok(Self::new(self.disk.clone(), id))
    }

    /// Creates a file with its contents, and a durable name.
    pub(crate) fn make(&self, name: &str, contents: Vec<u8>) -> Result<FileId, StorageError> {
        let action = StorageAction::Create;
        let path = self.checked(name, action)?;
        let struck = self.disk.strike(action, &path);
        let mut state = self.disk.state();
        if state.folders[self.id.0].names.contains_key(name) {
            return Err(StorageError::new(StorageErrorKind::AlreadyExists, action, path));
        }
        if state.free_bytes() < contents.len() as u64 {
            return Err(no_space(action, &path));
        }
        let id = state.add_file(contents);
        let changes = vec![(name.to_owned(), Some(id))];
        if let Err(error) = struck {
            // The file may exist after a power failure, but not before.
            let record = state.history.begin(Deed::Names { folder: self.id, changes });
            state.history.end(record, Outcome::Unknown);
            return Err(error);
        }
        drop(state);
        self.change_names(changes, Outcome::DoneDurably);
        Ok(id)
    }

    fn handle(&self, id: FileId, name: String) -> Arc<dyn StableFile> {
        self.disk.state().files[id.0].handle_count += 1;
        Arc::new(SimulatedFile { disk: self.disk.clone(), id, name })
    }
}

impl Folder for SimulatedFolder {
    fn create(&self, name: &str, size_bytes: u64) -> Result<Arc<dyn StableFile>, StorageError> {
        let action = StorageAction::Create;
        let path = self.checked(name, action)?;
        if !size_bytes.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(invalid("a file's size is a multiple of 4096 bytes", action, path));
        }
        let length = usize::try_from(size_bytes).expect("a file in memory");
        Ok(self.handle(self.make(name, vec![0; length])?, path))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn StableFile>, StorageError> {
        let path = self.admit(name, StorageAction::Open)?;
        Ok(self.handle(self.file_of(name, StorageAction::Open)?, path))
    }

    fn folder(&self, name: &str) -> Result<Arc<dyn Folder>, StorageError> {
        Ok(Arc::new(self.subfolder(name)?))
    }

    fn list(&self) -> Result<Vec<FileInfo>, StorageError> {
        self.disk.strike(StorageAction::List, &self.path_of(""))?;
        let state = self.disk.state();
        let info = |(name, id): (&String, &FileId)| {
            let size_bytes = state.files[id.0].contents.len() as u64;
            FileInfo { name: name.clone(), size_bytes }
        };
        Ok(state.folders[self.id.0].names.iter().map(info).collect())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError> {
        self.admit(from, StorageAction::Rename)?;
        let id = self.file_of(from, StorageAction::Rename)?;
        if from != to {
            let changes = vec![(from.to_owned(), None), (to.to_owned(), Some(id))];
            self.change_names(changes, Outcome::Done);
        }
        Ok(())
    }

    fn publish(&self, from: &str, to: &str) -> Result<(), StorageError> {
        if self.disk.state().folders[self.id.0].names.contains_key(to) {
            let kind = StorageErrorKind::AlreadyExists;
            return Err(StorageError::new(kind, StorageAction::Rename, self.path_of(to)));
        }
        self.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.admit(name, StorageAction::Remove)?;
        self.file_of(name, StorageAction::Remove)?;
        self.change_names(vec![(name.to_owned(), None)], Outcome::Done);
        Ok(())
    }

    fn sync_names(&self) -> Result<(), StorageError> {
        let record = self.disk.state().history.begin(Deed::SyncNames { folder: self.id });
        let struck = self.disk.strike(StorageAction::SyncNames, &self.path_of(""));
        let outcome = if struck.is_ok() { Outcome::Done } else { Outcome::Unknown };
        self.disk.state().history.end(record, outcome);
        struck
    }

    fn free_bytes(&self) -> Result<u64, StorageError> {
        self.disk.strike(StorageAction::MeasureFree, &self.path_of(""))?;
        Ok(self.disk.state().free_bytes())
    }
}

impl SimulatedFile {
    fn invalid(&self, action: StorageAction, why: &'static str) -> StorageError {
        invalid(why, action, self.name.clone())
    }

    fn put(
        &self,
        action: StorageAction,
        offset: u64,
        parts: &[IoSlice<'_>],
    ) -> Result<(), StorageError> {
        let bytes: Arc<[u8]> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        if !(offset | bytes.len() as u64).is_multiple_of(BLOCK_BYTES as u64) {
            return Err(self.invalid(action, "writes begin and end at multiples of 4096 bytes"));
        }
        if offset > self.size_bytes() {
            return Err(self.invalid(action, "a write begins past the end of the file"));
        }
        let offset = usize::try_from(offset).expect("a file in memory");
        let record = {
            let mut state = self.disk.state();
            let growth = (offset + bytes.len()).saturating_sub(state.size(self.id)) as u64;
            if growth > state.free_bytes() {
                return Err(no_space(action, &self.name));
            }
            let deed = Deed::Write { file: self.id, offset, bytes: Arc::clone(&bytes) };
            state.history.begin(deed)
        };
        let struck = self.disk.strike(action, &self.name);
        let mut state = self.disk.state();
        // A failing write stops in the middle.
        let written = if struck.is_ok() { bytes.len() } else { bytes.len() / 2 };
        state.store(self.id, offset, &bytes[..written]);
        let outcome = match (&struck, action) {
            (Err(_), _) => Outcome::Unknown,
            (Ok(()), StorageAction::WriteDurably) => Outcome::DoneDurably,
            (Ok(()), _) => Outcome::Done,
        };
        state.history.end(record, outcome);
        if struck.is_err() && action == StorageAction::WriteDurably {
            state.history.forsake(self.id);
        }
        struck
    }
}

impl StableFile for SimulatedFile {
    fn size_bytes(&self) -> u64 {
        self.disk.state().size(self.id) as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), StorageError> {
        let action = StorageAction::Read;
        if offset.checked_add(into.len() as u64).is_none_or(|end| end > self.size_bytes()) {
            return Err(self.invalid(action, "the range ends past the end of the file"));
        }
        self.disk.strike(action, &self.name)?;
        let start = usize::try_from(offset).expect("a file in memory");
        let contents = Arc::clone(&self.disk.state().files[self.id.0].contents);
        into.copy_from_slice(&contents[start..start + into.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<(), StorageError> {
        self.put(StorageAction::Write, offset, parts)
    }

    fn write_durably(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<(), StorageError> {
        self.put(StorageAction::WriteDurably, offset, parts)
    }

    fn sync(&self) -> Result<(), StorageError> {
        let record = self.disk.state().history.begin(Deed::Sync { file: self.id });
        let struck = self.disk.strike(StorageAction::Sync, &self.name);
        let outcome = if struck.is_ok() { Outcome::Done } else { Outcome::Unknown };
        self.disk.state().history.end(record, outcome);
        struck
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        self.disk.state().files[self.id.0].handle_count -= 1;
    }
}

fn invalid(why: &'static str, action: StorageAction, path: String) -> StorageError {
    StorageError::new(StorageErrorKind::Invalid(why), action, path)
}
