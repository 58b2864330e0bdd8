//! The interface between exports and volumes: everything that an export may know of a volume.
//!
//! Exports turn a protocol into calls of [`BlockDevice`]; the engine implements it. Neither knows
//! the other. This crate holds no state, starts nothing and never touches memory it was not given.
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
