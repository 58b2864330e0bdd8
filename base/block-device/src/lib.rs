//! The interface between exports and volumes. Exports use volumes only through it.
//!
//! Exports translate a protocol to calls of [`BlockDevice`], and the engine implements it. Neither
//! depends on the other. This crate has no state and no threads, and accesses only memory that it
//! was passed.
#![forbid(unsafe_code)]

mod device;
mod error;
mod range;
mod read_only;

pub use device::{
    BlockDevice, ChangeExtent, ChangeKind, Extent, ExtentKind, Geometry, SectorSize, SnapshotId,
    SnapshotInfo, WriteCache, Zeroes,
};
pub use error::{Action, DeviceError, DeviceErrorKind};
pub use range::{BLOCK_BYTES, ByteRange, IO_BYTES_MAX};
pub use read_only::ReadOnly;
