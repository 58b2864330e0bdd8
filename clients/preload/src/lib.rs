//! Unchanged programs reach volumes at memory speed.
//!
//! ```text
//! program ─▶ pread ─▶ hook ─▶ table ─▶ device ─▶ ring ─▶ daemon
//!                      │        what is known     sdk
//!                      │        of descriptors
//!                      └─▶ the C library ─▶ kernel ─▶ FUSE file or device ─▶ daemon
//! ```
//!
//! Loaded before the C library (`LD_PRELOAD`, as `memlane run` does), this library replaces the
//! functions by which programs read, write and flush. The descriptor remains the kernel's: open,
//! seek, lock, poll, share and close work as before, and every call that is not served here, for
//! whatever reason, goes through the kernel to the same volume.
//!
//! Invariants:
//!
//! - A call is served here only when the kernel would do the same: see `transfer`. Any doubt and
//!   any failure is the kernel's to answer.
//! - What is known of a descriptor may be forgotten at any time: see `table`.
//! - A thread enters once: what the hooks call themselves, and signal handlers that interrupt them,
//!   go straight to the kernel. See `inside`.
//! - No call on a descriptor that is known takes a lock here or allocates; none unwinds; `errno`
//!   stays as it is when a call succeeds.
//! - Programs that touch no volume pay for one page at their start, and for memory of each context
//!   of libaio until its first request.
//!
//! Locks: `devices`, which is tried for a while; `aio::Context`, for some instructions.
//! No thread that holds one of them takes another.

mod aio;
mod classify;
mod descriptor;
mod devices;
mod errno;
mod fork;
#[cfg_attr(test, allow(dead_code, reason = "tests run with the C library's own functions"))]
mod hooks;
mod inside;
mod link;
mod lock;
mod notice;
mod real;
mod settings;
mod sys;
mod table;
mod text;
mod transfer;
