//! ublk: block devices of the kernel whose requests a process of user space serves.
//!
//! ```text
//! /dev/ublk-control ── UblkControl: add, start, stop, delete, recover
//! /dev/ublkcN ──┬───── UblkQueue: requests in, results out (one thread for each queue)
//!               └───── UblkRequest: the data of one request
//! /dev/ublkbN ──────── what programs open
//! ```
//!
//! The kernel binds each queue to the thread that fetched its requests first; [`UblkQueue`] cannot
//! leave its thread for that reason. A [`UblkRequest`] may go anywhere, and has to come back to its
//! queue to be completed. Whether a request is valid for the device is not checked here.

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
