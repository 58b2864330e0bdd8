//! Errors of file operations, in the few kinds that callers distinguish.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// Kind of a storage error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageErrorKind {
    #[error("no space left; free space, or raise the quota")]
    NoSpace,
    /// The disk, its driver or the file system failed; see the source.
    #[error("I/O error; check the kernel log (dmesg) for disk errors, and replace a failing disk")]
    Io,
    #[error("it does not exist; check the name, and that its disk is mounted")]
    NotFound,
    #[error("it exists already")]
    AlreadyExists,
    #[error("access is denied; check owner, mode, and that the file system is writable")]
    Denied,
    #[error("another process uses it; stop that process, or use another directory")]
    Busy,
    /// An invalid request.
    #[error("{0}")]
    Invalid(&'static str),
}

/// Operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageAction {
    OpenFolder,
    Lock,
    Create,
    Open,
    List,
    Rename,
    Remove,
    SyncNames,
    MeasureFree,
    Read,
    Write,
    WriteDurably,
    Sync,
}

impl fmt::Display for StorageAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenFolder => "open the directory",
            Self::Lock => "lock the directory",
            Self::Create => "create",
            Self::Open => "open",
            Self::List => "list the directory",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::SyncNames => "sync the directory",
            Self::MeasureFree => "get the free space of",
            Self::Read => "read",
            Self::Write => "write",
            Self::WriteDurably => "durably write",
            Self::Sync => "sync",
        })
    }
}

/// Error of a refused or failed call. `kind` is for programs, the chain of causes for users.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {name}: {kind}")]
pub struct StorageError {
    pub kind: StorageErrorKind,
    pub action: StorageAction,
    /// File or folder, with its path if it has one.
    pub name: String,
    #[source]
    pub source: Option<io::Error>,
}

impl StorageError {
    /// Creates an error that did not come from a system call.
    pub fn new(kind: StorageErrorKind, action: StorageAction, name: impl Into<String>) -> Self {
        Self { kind, action, name: name.into(), source: None }
    }

    /// Converts the error of a system call.
    pub fn from_io(source: io::Error, action: StorageAction, name: impl Into<String>) -> Self {
        let kind = kind_of(&source);
        Self { kind, action, name: name.into(), source: Some(source) }
    }
}

fn kind_of(error: &io::Error) -> StorageErrorKind {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => StorageErrorKind::NoSpace,
        Some(Errno::NOENT) => StorageErrorKind::NotFound,
        Some(Errno::EXIST) => StorageErrorKind::AlreadyExists,
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => StorageErrorKind::Denied,
        Some(Errno::WOULDBLOCK | Errno::BUSY) => StorageErrorKind::Busy,
        Some(Errno::NOTDIR | Errno::ISDIR) => {
            StorageErrorKind::Invalid("a file was expected and a directory found, or the reverse")
        }
        _ => StorageErrorKind::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(errno: Errno, expected: StorageErrorKind) {
        let error = StorageError::from_io(errno.into(), StorageAction::Write, "segment");
        assert_eq!(error.kind, expected);
        assert!(error.source.is_some());
    }

    #[test]
    fn errors_of_the_kernel_fall_into_classes() {
        check(Errno::NOSPC, StorageErrorKind::NoSpace);
        check(Errno::DQUOT, StorageErrorKind::NoSpace);
        check(Errno::IO, StorageErrorKind::Io);
        check(Errno::NOENT, StorageErrorKind::NotFound);
        check(Errno::EXIST, StorageErrorKind::AlreadyExists);
        check(Errno::ROFS, StorageErrorKind::Denied);
        check(Errno::WOULDBLOCK, StorageErrorKind::Busy);
    }

    #[test]
    fn an_error_says_what_failed_on_what_and_what_to_do() {
        let error = StorageError::from_io(Errno::NOSPC.into(), StorageAction::Write, "/j/segment");
        assert_eq!(
            error.to_string(),
            "cannot write /j/segment: no space left; free space, or raise the quota"
        );
    }
}
