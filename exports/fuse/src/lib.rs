//! Volumes as files of a FUSE file system, and as loop devices on these files.
//!
//! ```text
//! application ─▶ /dev/loopN ─▶ kernel ─▶ /dev/fuse ─▶ worker pool ─▶ server ─▶ BlockDevice
//!                direct I/O    FUSE      connection   │ ▲      parses and
//!                                        │            ▼ │      executes
//!                                        │         schedule: which worker, and when
//!                                        └─▶ fd store keeps a copy while no process serves
//! ```
//!
//! A directory contains each volume as a regular file, which only the directory's user may open. A
//! loop device on such a file makes the volume a block device of the kernel. The server keeps no
//! state between requests, so a killed process can be replaced. The next process takes the
//! connection from the fd store and has the kernel resend the requests in flight, and no program
//! sees an error. Kernels before 6.9 cannot resend requests. There it serves the requests that the
//! killed process left in [memory](in_flight).
//!
//! Invariants:
//!
//! - No memory is allocated, and no other process is waited for, between a request and its reply.
//! - The serving process never opens, closes or stats a file that it serves. It would wait for
//!   itself and be unkillable; see [`HelperRunner`].
//! - One worker waits for requests; the others sleep unless there is work for them. It may do a
//!   flush without waking another worker, if no request is delayed by more than milliseconds.
//! - However many flushes wait for a disk, one worker remains for reads and writes.
//!
//! Locks: `Export::devices` is held while a helper command runs, to serialize helpers; no request
//! waits for it. `Export::known`, the schedule's waiting flushes, the pool's count of workers and
//! the table of open files are held for a few instructions. No thread that holds one of them takes
//! another.
#![forbid(unsafe_code)]

mod config;
mod connection;
mod export;
mod fd_store;
mod file_users;
mod files;
mod helper_command;
mod helper_process;
mod helper_runner;
mod in_flight;
mod kept;
mod loop_devices;
mod loop_queue;
mod mount;
mod reply;
mod request;
mod schedule;
mod server;
mod worker_pool;

pub use config::{Config, Resume};
pub use export::{Attachment, DeadDevice, Export, Keep, Origin};
pub use export_kit::{AttachError, AttachErrorKind, Traffic};
pub use file_users::FileUser;
pub use files::{FileEntry, FileId, FileState, Files};
pub use helper_process::run_command;
pub use helper_runner::HelperRunner;
