//! File of volume labels. The first line has the labels of all volumes, and each later change
//! appends a line, so the cost of a change does not depend on the number of volumes.
//!
//! ```text
//! {"version":2,"volumes":[{"volume_id":7,…},…]}     written as a whole
//! {"volume_id":9,"owner":"shop","labels":{}}        appended
//! {"volume_id":7,"owner":"","labels":{}}            appended: no owner and no labels any more
//! ```
//!
//! A change is durable when it returns. An incomplete last line belongs to a change that did not
//! return. The appended lines together are at most as long as the first line, or
//! [`APPENDED_BYTES_MIN`] if that is more. When they would exceed that, the whole file is
//! rewritten. The path is the same as in earlier releases.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use state_file::replace_file;

/// Format version of the file. Earlier releases wrote 1, without appended lines.
const VERSION: u32 = 2;

/// Minimum number of bytes that are appended before the file is rewritten.
const APPENDED_BYTES_MIN: u64 = 64 << 10;

/// Owner and labels of one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Labelled {
    pub(crate) volume_id: u64,
    /// Empty: no owner.
    pub(crate) owner: String,
    pub(crate) labels: BTreeMap<String, String>,
}

type ByVolume = BTreeMap<u64, Labelled>;

/// Labels by volume id, in memory and on disk.
#[derive(Debug)]
pub(crate) struct LabelFile {
    path: PathBuf,
    by_volume: ByVolume,
    /// `None`: the next change rewrites the file.
    open: Option<OpenFile>,
}

/// A file to which changes can be appended.
#[derive(Debug)]
struct OpenFile {
    file: File,
    /// Length of the first line.
    whole_bytes: u64,
    size_bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    version: u32,
    volumes: Vec<Labelled>,
}

impl LabelFile {
    /// Reads the file. If it does not exist, there are no labels.
    pub(crate) fn read(path: PathBuf) -> io::Result<Self> {
        let (by_volume, whole_bytes) = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (ByVolume::new(), None),
            read => parse(&read?)?,
        };
        let open = whole_bytes.map(|it| OpenFile::open(&path, it)).transpose()?;
        Ok(Self { path, by_volume, open })
    }

    pub(crate) fn get(&self, volume_id: u64) -> Option<&Labelled> {
        self.by_volume.get(&volume_id)
    }

    /// Replaces the labels of a volume in memory and on disk. On an error, neither is changed.
    pub(crate) fn set(&mut self, labelled: Labelled) -> io::Result<()> {
        let mut line = serde_json::to_vec(&labelled)?;
        line.push(b'\n');
        match self.open.take_if(|it| it.has_room(line.len() as u64)) {
            Some(open) => {
                let appended = open.append(&line);
                self.open = Some(appended.map_err(|error| {
                    let what = format!("cannot write {}: {error}", self.path.display());
                    io::Error::new(error.kind(), what)
                })?);
            }
            None => {
                // If this fails, the next change rewrites the file again.
                self.open = None;
                let mut by_volume = self.by_volume.clone();
                change(&mut by_volume, labelled.clone());
                self.open = Some(OpenFile::write(&self.path, &by_volume)?);
            }
        }
        change(&mut self.by_volume, labelled);
        Ok(())
    }
}

impl OpenFile {
    fn open(path: &Path, whole_bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).open(path)?;
        let size_bytes = file.metadata()?.len();
        Ok(Self { file, whole_bytes, size_bytes })
    }

    /// Replaces the file with these labels.
    fn write(path: &Path, by_volume: &ByVolume) -> io::Result<Self> {
        let volumes = by_volume.values().cloned().collect();
        let mut text = serde_json::to_vec(&Whole { version: VERSION, volumes })?;
        text.push(b'\n');
        replace_file(path, &text)?;
        Self::open(path, text.len() as u64)
    }

    /// Returns whether this many bytes may be appended, and the file was not deleted.
    fn has_room(&self, bytes: u64) -> bool {
        let appended_bytes = self.size_bytes - self.whole_bytes + bytes;
        let is_there = self.file.metadata().is_ok_and(|it| it.nlink() > 0);
        is_there && appended_bytes <= self.whole_bytes.max(APPENDED_BYTES_MIN)
    }

    /// Appends a line. On an error the file is truncated to its former length; in any case the next
    /// change rewrites it.
    fn append(mut self, line: &[u8]) -> io::Result<Self> {
        let appended = self.file.write_all(line).and_then(|()| self.file.sync_data());
        if let Err(error) = appended {
            // Otherwise the next start could read a complete line of a change that failed.
            let cut = self.file.set_len(self.size_bytes).and_then(|()| self.file.sync_data());
            if let Err(error) = cut {
                tracing::warn!(%error, "cannot undo a failed change of labels");
            }
            return Err(error);
        }
        self.size_bytes += line.len() as u64;
        Ok(self)
    }
}

fn change(by_volume: &mut ByVolume, labelled: Labelled) {
    match labelled.owner.is_empty() && labelled.labels.is_empty() {
        true => drop(by_volume.remove(&labelled.volume_id)),
        false => drop(by_volume.insert(labelled.volume_id, labelled)),
    }
}

/// Parses the labels. Also returns the length of the first line, if changes can be appended.
fn parse(text: &[u8]) -> io::Result<(ByVolume, Option<u64>)> {
    let damaged = |why: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidData, format!("it is damaged: {why}"))
    };
    let (whole, is_of_lines) = match serde_json::from_slice::<Whole>(text) {
        Ok(whole) => {
            // A file edited by hand may have the document on several lines.
            let first_end = text.iter().position(|it| *it == b'\n').map(|end| end + 1);
            let is_of_lines = whole.version == VERSION && first_end == Some(text.len());
            (whole, is_of_lines)
        }
        Err(error) => {
            let first = text.iter().position(|it| *it == b'\n').map(|end| &text[..end]);
            let whole = first.map(serde_json::from_slice::<Whole>).and_then(Result::ok);
            (whole.filter(|it| it.version == VERSION).ok_or_else(|| damaged(&error))?, true)
        }
    };
    if !(1..=VERSION).contains(&whole.version) {
        let why = format!("it has format {}, this version reads 1 to {VERSION}", whole.version);
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut by_volume: ByVolume = whole.volumes.into_iter().map(|it| (it.volume_id, it)).collect();
    if !is_of_lines {
        return Ok((by_volume, None));
    }
    let mut lines = text.split_inclusive(|it| *it == b'\n');
    let whole_bytes = lines.next().map_or(0, <[u8]>::len) as u64;
    let mut lines = lines.enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let is_last = lines.peek().is_none();
        let read = line.strip_suffix(b"\n").map(serde_json::from_slice::<Labelled>);
        match read {
            Some(Ok(labelled)) => change(&mut by_volume, labelled),
            // An incomplete last line belongs to a change that was never acknowledged.
            _ if is_last => return Ok((by_volume, None)),
            Some(Err(error)) => return Err(damaged(&format!("line {}: {error}", number + 2))),
            None => unreachable!("only the last line has no end"),
        }
    }
    Ok((by_volume, Some(whole_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(volume_id: u64, owner: &str) -> Labelled {
        Labelled { volume_id, owner: owner.to_owned(), ..Labelled::default() }
    }

    fn all(file: &LabelFile) -> Vec<Labelled> {
        file.by_volume.values().cloned().collect()
    }

    #[test]
    fn a_file_of_an_earlier_release_is_read_and_written_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("labels.json");
        let old = "{\n  \"version\": 1,\n  \"volumes\": [\n    {\n      \"volume_id\": 7,\n      \
                   \"owner\": \"shop\",\n      \"labels\": {}\n    }\n  ]\n}";
        fs::write(&path, old).expect("a file");
        let mut file = LabelFile::read(path.clone()).expect("it is read");
        assert_eq!(all(&file), [of(7, "shop")]);
        assert_eq!(fs::read_to_string(&path).expect("a file"), old, "nothing was changed");
        file.set(of(9, "ann")).expect("it is stored");
        file.set(of(7, "")).expect("it is stored");
        let text = fs::read_to_string(&path).expect("a file");
        assert!(text.starts_with("{\"version\":2,\"volumes\":[{\"volume_id\":7,"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
        assert_eq!(all(&LabelFile::read(path).expect("it is read")), [of(9, "ann")]);
    }

    #[test]
    fn a_change_that_was_cut_off_never_was_and_all_before_it_are_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("labels.json");
        let mut file = LabelFile::read(path.clone()).expect("no file yet");
        for volume_id in 0..4 {
            file.set(of(volume_id, "ann")).expect("it is stored");
        }
        let text = fs::read(&path).expect("a file");
        let ends: Vec<_> = (1..=text.len()).filter(|end| text[end - 1] == b'\n').collect();
        for length in ends[0]..=text.len() {
            for tail in [&b""[..], &[0; 20]] {
                fs::write(&path, [&text[..length], tail].concat()).expect("a file");
                let mut cut = LabelFile::read(path.clone()).expect("it is read");
                let whole = ends.iter().filter(|end| **end <= length).count();
                assert_eq!(cut.by_volume.len(), whole, "cut at {length} of {}", text.len());
                cut.set(of(8, "bob")).expect("it is stored");
                let again = LabelFile::read(path.clone()).expect("it is read");
                assert_eq!(all(&again), all(&cut));
            }
        }
    }

    #[test]
    fn changes_are_appended_until_they_are_as_long_as_what_they_change() {
        // The test makes many changes, and syncs on tmpfs are fast.
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let path = folder.path().join("labels.json");
        let mut file = LabelFile::read(path.clone()).expect("no file yet");
        let (mut written, mut writes, mut before) = (0, 0, None);
        for volume_id in 0..5_000 {
            file.set(of(volume_id, "an-owner")).expect("it is stored");
            let found = fs::metadata(&path).expect("a file");
            writes += usize::from(before != Some(found.ino()));
            before = Some(found.ino());
            written = found.len();
        }
        assert!(writes < 10, "{writes} times written as a whole");
        // The same holds for one volume that is changed repeatedly in a short file.
        let mut writes = 0;
        for round in 0..20_000 {
            file.set(of(7, if round % 2 == 0 { "one" } else { "another" })).expect("it is stored");
            let found = fs::metadata(&path).expect("a file");
            writes += usize::from(before != Some(found.ino()));
            before = Some(found.ino());
            assert!(found.len() <= 2 * written + APPENDED_BYTES_MIN);
        }
        assert!((1..20).contains(&writes), "{writes} times written as a whole");
        let again = LabelFile::read(path).expect("it is read");
        assert_eq!((again.by_volume.len(), all(&again)), (5_000, all(&file)));
    }

    #[test]
    fn a_file_that_was_removed_is_written_as_a_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("labels.json");
        let mut file = LabelFile::read(path.clone()).expect("no file yet");
        file.set(of(1, "ann")).expect("it is stored");
        fs::remove_file(&path).expect("it was there");
        file.set(of(2, "bob")).expect("it is stored");
        assert_eq!(all(&LabelFile::read(path).expect("it is read")), [of(1, "ann"), of(2, "bob")]);
        drop(folder);
        file.set(of(3, "cid")).expect_err("the folder is gone");
        assert_eq!(all(&file), [of(1, "ann"), of(2, "bob")]);
    }

    #[test]
    fn a_damaged_or_newer_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("labels.json");
        let whole = "{\"version\":2,\"volumes\":[]}\n";
        let line = "{\"volume_id\":1,\"owner\":\"a\",\"labels\":{}}\n";
        for (text, expected) in [
            (String::new(), "damaged"),
            ("{\"version\": 1, \"vol".to_owned(), "damaged"),
            ("{\"version\": 3, \"volumes\": []}".to_owned(), "format 3"),
            ("{\"version\": 1, \"volumes\": [], \"colour\": []}".to_owned(), "colour"),
            (format!("{whole}{{\"volume_id\":1,\n{line}"), "line 2"),
        ] {
            fs::write(&path, &text).expect("a file");
            let error = LabelFile::read(path.clone()).expect_err("it is refused");
            assert!(error.to_string().contains(expected), "{error} of {text}");
        }
    }
}
