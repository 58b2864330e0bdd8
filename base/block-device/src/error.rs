//! Errors of requests, in the few classes that a protocol can express.

use std::error::Error;
use std::fmt;

use crate::range::ByteRange;

/// Class of a refused or failed request. Exports map it to codes of their protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceErrorKind {
    /// The range ends past the end of the device.
    #[error("the range ends past the end of the device")]
    OutOfRange,
    /// The range is longer than [`crate::IO_BYTES_MAX`] in a call that moves data.
    #[error("the range is longer than one request may be")]
    TooLong,
    /// The pool has no memory left for the data. Blocks that were not written yet are unchanged;
    /// the caller may discard and try again.
    #[error("the pool has no free memory left")]
    NoSpace,
    /// The volume was deleted while the export held it.
    #[error("the volume was deleted")]
    Gone,
    /// Stored bytes cannot be decoded. Nothing was returned.
    #[error("the stored data is damaged")]
    Corrupt,
    /// The device refuses writes, now or always. Nothing was changed.
    #[error("the device is read-only")]
    ReadOnly,
    /// Stable storage did not accept the data of a flush. It can still be read, but may be lost at
    /// a power failure until a later flush succeeds.
    #[error("the data written could not be made durable")]
    NotDurable,
    /// The snapshot to compare with was deleted, or never was one of this device.
    #[error("the device has no such snapshot")]
    NoSnapshot,
}

/// Action that was attempted.
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

/// A refused or failed request. `kind` is for programs, the whole chain for people.
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
