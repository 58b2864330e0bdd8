//! Errors of requests, in the few kinds that protocols can express.

use std::error::Error;
use std::fmt;

use crate::range::ByteRange;

/// Kind of a refused or failed request. Exports map it to error codes of their protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceErrorKind {
    /// The range ends beyond the end of the device.
    #[error("the range ends past the end of the device")]
    OutOfRange,
    /// The range is longer than [`crate::IO_BYTES_MAX`] in a call that transfers data.
    #[error("the range is longer than one request may be")]
    TooLong,
    /// The pool has no free memory for the data. Blocks that were not written yet are unchanged.
    /// The caller may discard and retry.
    #[error("the pool has no free memory left")]
    NoSpace,
    /// The volume was deleted while the export used it.
    #[error("the volume was deleted")]
    Gone,
    /// Stored data is corrupt. Nothing was returned.
    #[error("the stored data is corrupt")]
    Corrupt,
    /// The device refuses writes, temporarily or permanently. Nothing was changed.
    #[error("the device is read-only")]
    ReadOnly,
    /// Stable storage did not accept the data of a flush. The data can still be read, but may be
    /// lost at a power loss until a later flush succeeds.
    #[error("cannot make the written data durable")]
    NotDurable,
    /// The snapshot was deleted, or does not belong to this device.
    #[error("the device has no such snapshot")]
    NoSnapshot,
}

/// Operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Read,
    Write,
    WriteZeroes,
    Discard,
    Flush,
    ListExtents,
    ListChanges,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::WriteZeroes => "write zeroes to",
            Self::Discard => "discard",
            Self::Flush => "flush",
            Self::ListExtents => "list the extents of",
            Self::ListChanges => "list the changes of",
        })
    }
}

/// Error of a refused or failed request. `kind` is for programs, the chain of causes for users.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {range}: {kind}")]
pub struct DeviceError {
    pub kind: DeviceErrorKind,
    pub action: Action,
    pub range: ByteRange,
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl DeviceError {
    pub fn new(kind: DeviceErrorKind, action: Action, range: ByteRange) -> Self {
        Self { kind, action, range, source: None }
    }
}
