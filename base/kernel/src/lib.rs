//! Safe wrappers of system calls for which no library has one.
//!
//! Unsafe code is confined to `sys` and `ublk::sys`: one function for each call, one unsafe
//! operation in each block. The rest of the crate provides types and ownership. It contains no
//! policy: callers decide when to bind a loop device or to lock memory.

mod kept_memory;
mod loop_device;
mod peer;
mod process;
mod sys;
mod ublk;

pub use kept_memory::KeptMemory;
pub use loop_device::{Backing, LoopBinding, LoopControl, LoopDevice, Partitions};
pub use peer::groups_of_peer;
pub use process::{lock_memory, return_freed_memory, serve_block_io};
pub use ublk::{
    UBLK_DEPTH_MAX, UblkAccess, UblkChannel, UblkControl, UblkDevice, UblkEvent, UblkFeatures,
    UblkOperation, UblkQueue, UblkRequest, UblkShape, UblkState, UblkWaker,
};
