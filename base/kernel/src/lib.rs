//! System calls that libraries do not offer safely, each behind a function that cannot be misused.
//!
//! Unsafe code is confined to `sys`: one function for each call, one unsafe operation in each. The
//! rest of the crate gives the calls names and owners. It decides nothing: when to bind a loop
//! device or to lock memory is its callers' business.

mod loop_device;
mod process;
mod sys;

pub use loop_device::{Backing, LoopBinding, LoopControl, LoopDevice};
pub use process::{lock_memory, return_freed_memory, serve_block_io};
