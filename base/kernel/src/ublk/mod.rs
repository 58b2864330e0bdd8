//! ublk: kernel block devices that are served by a process in user space.
//!
//! ```text
//! /dev/ublk-control ── UblkControl: add, start, stop, delete, recover
//! /dev/ublkcN ──┬───── UblkQueue: requests in, results out (one thread for each queue)
//!               └───── UblkRequest: the data of one request
//! /dev/ublkbN ──────── what programs open
//! ```
//!
//! The kernel binds each queue to the thread that first fetched its requests, so a [`UblkQueue`]
//! cannot be moved to another thread. A [`UblkRequest`] may be moved, but must be returned to its
//! queue to be completed. This module does not check whether a request is valid for the device.

mod abi;
mod control;
mod data;
mod queue;
mod sys;

pub use abi::{
    UBLK_DEPTH_MAX, UblkAccess, UblkDevice, UblkFeatures, UblkOperation, UblkShape, UblkState,
};
pub use control::UblkControl;
pub use data::UblkRequest;
pub use queue::{UblkChannel, UblkEvent, UblkQueue, UblkWaker};
