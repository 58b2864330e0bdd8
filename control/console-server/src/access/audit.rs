//! The audit log: who asked for what from where, and what came of it. A line of JSON for each.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// What callers did who are known, and what was tried by others: in files of their own, so that
/// nobody who is not known can push out what others did. The second of each is the full one before.
const FILES: [(&str, &str); 2] =
    [("audit.jsonl", "audit.old.jsonl"), ("attempts.jsonl", "attempts.old.jsonl")];

/// Of each file: some 40,000 lines.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Longer paths are cut off.
const PATH_CHARACTERS_MAX: usize = 512;

/// What was asked for. Holds no secret: paths have none, and bodies are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AuditEntry {
    pub(crate) id: u64,
    /// Unix seconds.
    pub(crate) time: u64,
    pub(crate) user: Option<String>,
    /// The id of the token that was shown.
    pub(crate) token: Option<String>,
    pub(crate) address: String,
    pub(crate) method: String,
    pub(crate) path: String,
    /// The status code of the answer.
    pub(crate) status: u16,
}

#[derive(Debug)]
struct Open {
    files: Vec<Written>,
    next_id: u64,
}

#[derive(Debug)]
struct Written {
    file: File,
    bytes: u64,
}

/// Whether an entry is of somebody who has shown who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Known,
    Unknown,
}

/// The files that are written, and those before.
#[derive(Debug)]
pub(crate) struct AuditLog {
    folder: PathBuf,
    open: Mutex<Open>,
}

impl AuditLog {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let newest = read_all(folder)?.iter().map(|it| it.id).max();
        let mut files = Vec::new();
        for (name, _) in FILES {
            let mut file = append_to(&folder.join(name))?;
            let mut bytes = file.metadata()?.len();
            if bytes > 0 {
                // A line that a crash cut off is ended, and passed over by readers.
                file.write_all(b"\n")?;
                bytes += 1;
            }
            files.push(Written { file, bytes });
        }
        let open = Open { files, next_id: newest.map_or(1, |id| id + 1) };
        Ok(Self { folder: folder.to_owned(), open: Mutex::new(open) })
    }

    /// Adds an entry, whose id it chooses. Where that fails, the console's own log says so.
    pub(crate) fn add(&self, by: By, entry: AuditEntry) {
        if let Err(error) = self.write(by, entry) {
            tracing::error!(%error, "the audit log cannot be written");
        }
    }

    fn write(&self, by: By, mut entry: AuditEntry) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        entry.id = open.next_id;
        entry.path = entry.path.chars().take(PATH_CHARACTERS_MAX).collect();
        let index = usize::from(by == By::Unknown);
        let written = &mut open.files[index];
        if written.bytes >= FILE_BYTES_MAX {
            let (name, old_name) = FILES[index];
            let path = self.folder.join(name);
            fs::rename(&path, self.folder.join(old_name))?;
            *written = Written { file: append_to(&path)?, bytes: 0 };
        }
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        written.file.write_all(&line)?;
        written.bytes += line.len() as u64;
        open.next_id += 1;
        Ok(())
    }

    /// The newest entries first, `count` at most, all older than `before` where that is given.
    /// Reads the files: not for threads that serve others.
    pub(crate) fn newest(&self, before: Option<u64>, count: usize) -> io::Result<Vec<AuditEntry>> {
        let mut entries = read_all(&self.folder)?;
        entries.retain(|it| before.is_none_or(|before| it.id < before));
        entries.sort_by_key(|it| std::cmp::Reverse(it.id));
        entries.truncate(count);
        Ok(entries)
    }
}

fn read_all(folder: &Path) -> io::Result<Vec<AuditEntry>> {
    let mut entries = Vec::new();
    for (name, old_name) in FILES {
        entries.append(&mut read(&folder.join(old_name))?);
        entries.append(&mut read(&folder.join(name))?);
    }
    Ok(entries)
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn read(path: &Path) -> io::Result<Vec<AuditEntry>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut entries = Vec::new();
    for line in BufReader::new(file).split(b'\n') {
        entries.extend(serde_json::from_slice::<AuditEntry>(&line?));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str) -> AuditEntry {
        AuditEntry {
            id: 0,
            time: 5,
            user: Some("ann".to_owned()),
            token: None,
            address: "127.0.0.1".to_owned(),
            method: "POST".to_owned(),
            path: path.to_owned(),
            status: 201,
        }
    }

    #[test]
    fn entries_have_rising_ids_also_after_a_crash_in_the_middle_of_a_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = AuditLog::open(folder.path()).expect("a new one");
        (0..3).for_each(|number| log.add(By::Known, entry(&format!("/v1/{number}"))));
        drop(log);
        let mut file = append_to(&folder.path().join(FILES[0].0)).expect("it is there");
        file.write_all(b"{\"id\": 4, \"ti").expect("there is room");
        let log = AuditLog::open(folder.path()).expect("it is there");
        log.add(By::Unknown, entry("/v1/3"));
        let ids = |before, count| -> Vec<_> {
            let found = log.newest(before, count).expect("it is read");
            found.into_iter().map(|it| (it.id, it.path)).collect()
        };
        assert_eq!(ids(None, 2), [(4, "/v1/3".to_owned()), (3, "/v1/2".to_owned())]);
        assert_eq!(ids(Some(2), 10), [(1, "/v1/0".to_owned())]);
    }

    #[test]
    fn nobody_who_is_not_known_pushes_out_what_others_did() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = AuditLog::open(folder.path()).expect("a new one");
        log.add(By::Known, entry("/v1/volumes"));
        for _ in 0..3 {
            log.add(By::Unknown, entry("/console/v1/session"));
            let mut open = log.open.lock().expect("nothing panicked");
            open.files[1].bytes = FILE_BYTES_MAX;
        }
        log.add(By::Unknown, entry("/console/v1/session"));
        let kept = log.newest(None, 10).expect("they are read");
        assert_eq!(kept.iter().map(|it| it.id).collect::<Vec<_>>(), [5, 4, 1]);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 3);
    }
}
