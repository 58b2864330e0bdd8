//! Persistent state of a process: versioned JSON in a file that is replaced atomically.
//!
//! Readers, and a start after a power loss, find the state before or after a change.
#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Format version of all state files.
const FORMAT_VERSION: u32 = 1;

/// State in memory and on disk. Both are equal, except for changes that [`StateFile::note`] could
/// not store.
#[derive(Debug)]
pub struct StateFile<T> {
    path: PathBuf,
    state: T,
    /// A noted change is missing in the file.
    is_behind: bool,
}

/// Content of the file: the version and the fields of the state in one object.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    state: T,
}

impl<T: Clone + PartialEq + Serialize + DeserializeOwned> StateFile<T> {
    /// Reads the file. `None` if it does not exist.
    pub fn open(path: PathBuf) -> io::Result<Option<Self>> {
        Ok(read(&path)?.map(|state| Self { path, state, is_behind: false }))
    }

    /// Reads the file. If it does not exist, starts with the default, which is stored at the first
    /// change.
    pub fn open_or_default(path: PathBuf) -> io::Result<Self>
    where
        T: Default,
    {
        let state = read(&path)?.unwrap_or_default();
        Ok(Self { path, state, is_behind: false })
    }

    /// Creates the file with an initial state.
    pub fn create(path: PathBuf, state: T) -> io::Result<Self> {
        store(&path, &state)?;
        Ok(Self { path, state, is_behind: false })
    }

    pub fn state(&self) -> &T {
        &self.state
    }

    /// Changes the state in memory and on disk. On an error, neither is changed.
    pub fn change(&mut self, change: impl FnOnce(&mut T)) -> io::Result<()> {
        let mut state = self.state.clone();
        change(&mut state);
        if self.is_behind || state != self.state {
            store(&self.path, &state)?;
            self.state = state;
            self.is_behind = false;
        }
        Ok(())
    }

    /// Records a completed change: in memory always, and on disk if possible. On an error, the next
    /// change stores it.
    pub fn note(&mut self, change: impl FnOnce(&mut T)) -> io::Result<()> {
        let before = self.state.clone();
        change(&mut self.state);
        if self.is_behind || self.state != before {
            self.is_behind = true;
            store(&self.path, &self.state)?;
            self.is_behind = false;
        }
        Ok(())
    }

    /// Reads the file again, because it may have been edited, without changing the state.
    pub fn read_again(&self) -> io::Result<T>
    where
        T: Default,
    {
        Ok(read(&self.path)?.unwrap_or_default())
    }

    /// Stores the state in memory, after [`StateFile::replace`].
    pub fn store(&self) -> io::Result<()> {
        store(&self.path, &self.state)
    }

    /// Replaces the state in memory by one that was read again.
    pub fn replace(&mut self, state: T) {
        self.is_behind = false;
        self.state = state;
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        result => result?,
    };
    let damaged = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    // Parsed in two steps, because a flattened field would silently accept unknown fields.
    let Versioned::<serde_json::Map<String, serde_json::Value>> { version, state } =
        serde_json::from_slice(&text)
            .map_err(|error| damaged(format!("it is damaged: {error}")))?;
    if version != FORMAT_VERSION {
        return Err(damaged(format!(
            "it has format {version}, this version reads {FORMAT_VERSION}"
        )));
    }
    serde_json::from_value(state.into())
        .map(Some)
        .map_err(|error| damaged(format!("it is damaged: {error}")))
}

fn store(path: &Path, state: &impl Serialize) -> io::Result<()> {
    replace_file(path, &serde_json::to_vec_pretty(&Versioned { version: FORMAT_VERSION, state })?)
}

/// Replaces the file at `path` atomically: after a power loss it has the old or the new contents.
/// The error names the file.
pub fn replace_file(path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("json.new");
    let created = File::create(&temporary);
    let stored = created.and_then(|file| put_in_place(&temporary, file, path, contents));
    stored.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
    })
}

/// Replaces a file as [`replace_file`] does, for confidential contents. A new file has mode 0600.
/// An existing file keeps its owner, group and mode, except that others lose write permission.
pub fn replace_private_file(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = path.with_file_name(name);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    match fs::metadata(path) {
        Ok(old) => {
            let new = file.metadata()?;
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                fchown(&file, Some(old.uid()), Some(old.gid()))?;
            }
            file.set_permissions(Permissions::from_mode(old.mode() & 0o755))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    put_in_place(&temporary, file, path, contents)
}

fn put_in_place(temporary: &Path, mut file: File, path: &Path, contents: &[u8]) -> io::Result<()> {
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Names {
        names: Vec<String>,
    }

    fn add(file: &mut StateFile<Names>, name: &str) -> io::Result<()> {
        file.change(|state| state.names.push(name.to_owned()))
    }

    #[test]
    fn the_state_comes_back_in_the_form_that_it_always_had() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("names.json");
        let mut file = StateFile::<Names>::open_or_default(path.clone()).expect("no file yet");
        assert!(!path.exists());
        add(&mut file, "a").expect("it is stored");
        let text = fs::read_to_string(&path).expect("a file");
        assert_eq!(text, "{\n  \"version\": 1,\n  \"names\": [\n    \"a\"\n  ]\n}");
        let again = StateFile::<Names>::open(path).expect("it is read").expect("it is there");
        assert_eq!(again.state(), file.state());
        assert_eq!(again.read_again().expect("it is read"), *file.state());
    }

    #[test]
    fn a_change_that_cannot_be_stored_is_not_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("names.json");
        let mut file = StateFile::create(path.clone(), Names::default()).expect("it is stored");
        drop(dir);
        let error = add(&mut file, "a").expect_err("the directory is gone");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        assert_eq!(*file.state(), Names::default());
    }

    #[track_caller]
    fn check_refused(contents: &str, expected: &str) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("names.json");
        fs::write(&path, contents).expect("a file");
        let error = StateFile::<Names>::open(path).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn a_damaged_or_newer_file_is_refused() {
        check_refused("{\"version\": 1, \"nam", "damaged");
        check_refused("{\"version\": 1, \"names\": [], \"colour\": 1}", "damaged");
        check_refused("{\"version\": 2, \"names\": []}", "format 2");
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("a file").mode() & 0o7777
    }

    #[test]
    fn a_private_file_is_its_owners_and_keeps_a_mode_that_is_stricter_than_others_may_write() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("users.toml");
        fs::write(dir.path().join("users.toml.new"), "left behind").expect("a file");
        replace_private_file(&path, b"1").expect("it is stored");
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("it is ours");
        replace_private_file(&path, b"2").expect("it is stored");
        assert_eq!(mode(&path), 0o644);
        assert_eq!(fs::read(&path).expect("a file"), b"2");
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1);
    }
}
