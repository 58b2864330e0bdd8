//! Preloaded library that gives unmodified programs access to volumes through shared memory.
//!
//! ```text
//! program ─▶ pread ─▶ hook ─▶ table ─▶ device ─▶ ring ─▶ daemon
//!                      │        state of          sdk
//!                      │        descriptors
//!                      └─▶ the C library ─▶ kernel ─▶ FUSE file or device ─▶ daemon
//! ```
//!
//! The library is loaded before the C library (`LD_PRELOAD`, as by `memlane run`), and replaces the
//! functions that read, write and flush. Descriptors remain those of the kernel: open, seek, lock,
//! poll, share and close work as before. Every call that is not served here goes through the kernel
//! to the same volume.
//!
//! Invariants:
//!
//! - A call is served here only if the kernel would have the same effect: see `transfer`. Doubtful
//!   and failed calls are passed to the kernel.
//! - The entry of a descriptor may be discarded at any time: see `table`.
//! - Hooks are not reentrant: calls by hooks, and by signal handlers that interrupt them, go
//!   directly to the kernel. See `inside`.
//! - No call on a known descriptor takes a lock or allocates memory. No call unwinds. Successful
//!   calls do not change `errno`.
//! - For programs that use no volume, the overhead is one page at the start, and memory for each
//!   aio context until its first request.
//!
//! Locks: `devices`, which is tried for a bounded time; `aio::Context`, held for a few
//! instructions. No thread that holds one of them takes another.

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
