//! Users of served files: processes that have a file open according to `/proc`, and the number of
//! open handles since the files are served.
//!
//! The number is exact for files opened while this process serves, but does not identify processes,
//! and excludes files opened earlier. `/proc` identifies processes, but does not show files that
//! the kernel itself has open, nor descriptors in transit between processes.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Maximum number of processes that are reported.
const NAMED_MAX: usize = 8;

/// Access mode bits of open flags (`O_ACCMODE`). Zero is read-only.
const ACCESS: u32 = 0b11;

/// A user of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUser {
    /// Description of the user, with advice.
    pub words: String,
    /// The user may write.
    pub writes: bool,
}

/// Number of open handles of each file since this process serves it.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    /// Handle that opened files get. A file closed with another handle was opened earlier.
    handle: u64,
    by_node: Mutex<HashMap<u64, u64>>,
    /// Node that a helper of this process may open for writing although it has an exclusive user.
    let_in: AtomicU64,
}

impl OpenFiles {
    pub(crate) fn new() -> Self {
        // The clock starts at boot, and only one process at a time serves the files, so the handle
        // is unique.
        let now = clock_gettime(ClockId::Monotonic);
        let ns = now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec);
        let handle = ns.unsigned_abs() | 1;
        Self { handle, by_node: Mutex::default(), let_in: AtomicU64::new(0) }
    }

    /// Counts an opened file, and returns its handle.
    pub(crate) fn opened(&self, node: u64) -> u64 {
        *self.lock().entry(node).or_default() += 1;
        self.handle
    }

    pub(crate) fn closed(&self, node: u64, handle: u64) {
        if handle != self.handle {
            return;
        }
        let mut by_node = self.lock();
        if let Some(count) = by_node.get_mut(&node) {
            *count -= 1;
            if *count == 0 {
                by_node.remove(&node);
            }
        }
    }

    pub(crate) fn count(&self, node: u64) -> u64 {
        self.lock().get(&node).copied().unwrap_or_default()
    }

    /// Lets a helper of this process open the file for writing while `act` runs.
    pub(crate) fn letting_in<T>(&self, node: u64, act: impl FnOnce() -> T) -> T {
        self.let_in.store(node, Ordering::SeqCst);
        let done = act();
        self.let_in.store(0, Ordering::SeqCst);
        done
    }

    pub(crate) fn is_let_in(&self, node: u64) -> bool {
        self.let_in.load(Ordering::SeqCst) == node
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        // Each change is complete, also after a panic.
        self.by_node.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Processes that have a file open, up to a maximum number. A process that exits meanwhile is
/// skipped.
pub(crate) fn processes(file_system: u64, inode: u64) -> io::Result<Vec<FileUser>> {
    let processes = fs::read_dir("/proc")?.flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    Ok(ids.filter_map(|id| user(id, file_system, inode)).take(NAMED_MAX).collect())
}

fn user(id: u32, file_system: u64, inode: u64) -> Option<FileUser> {
    let descriptors = fs::read_dir(format!("/proc/{id}/fd")).ok()?.flatten();
    let on_it = descriptors.filter(|it| is_on(&it.path(), file_system, inode));
    let writes = on_it.map(|descriptor| may_write(id, &descriptor.file_name().to_string_lossy()));
    let writes = writes.reduce(|one, other| one || other)?;
    let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
    let words = format!("process {id} ({}) has its file open; stop it first", name.trim());
    Some(FileUser { words, writes })
}

/// Returns whether a descriptor refers to this inode. Uses cached attributes, because a query could
/// wait for the server of the file.
fn is_on(descriptor: &Path, file_system: u64, inode: u64) -> bool {
    let known = statx(CWD, descriptor, AtFlags::STATX_DONT_SYNC, StatxFlags::INO);
    known.is_ok_and(|it| {
        it.stx_ino == inode && makedev(it.stx_dev_major, it.stx_dev_minor) == file_system
    })
}

fn may_write(id: u32, descriptor: &str) -> bool {
    let text = fs::read_to_string(format!("/proc/{id}/fdinfo/{descriptor}")).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok());
    flags.is_none_or(|flags| flags & ACCESS != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn files_are_counted_from_when_they_are_opened_until_they_are_closed() {
        let open = OpenFiles::new();
        let handle = open.opened(7);
        assert_eq!((open.opened(7), open.count(7), open.count(8)), (handle, 2, 0));
        open.closed(7, handle);
        open.closed(7, handle - 1);
        assert_eq!(open.count(7), 1, "a file that was opened before is not counted");
        open.closed(7, handle);
        assert_eq!(open.count(7), 0);
    }

    #[test]
    fn a_helper_is_let_in_while_it_is_at_work() {
        let open = OpenFiles::new();
        assert!(open.letting_in(7, || open.is_let_in(7) && !open.is_let_in(8)));
        assert!(!open.is_let_in(7));
    }

    #[track_caller]
    fn check_own(file: &fs::File, writes: bool) {
        let metadata = file.metadata().expect("it is open");
        let users = processes(metadata.dev(), metadata.ino()).expect("every system has /proc");
        let [user] = &users[..] else { panic!("{users:?}") };
        assert!(user.words.contains(&std::process::id().to_string()), "{user:?}");
        assert_eq!(user.writes, writes);
    }

    #[test]
    fn a_process_that_has_a_file_open_is_named() {
        let path = std::env::temp_dir().join(format!("users-test-{}", std::process::id()));
        let writing = fs::File::create(&path).expect("the directory is writable");
        check_own(&writing, true);
        drop(writing);
        let reading = fs::File::open(&path).expect("it was just made");
        fs::remove_file(&path).expect("it was just made");
        check_own(&reading, false);
    }
}
