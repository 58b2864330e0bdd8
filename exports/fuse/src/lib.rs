//! Volumes as files over `/dev/fuse`, and as loop devices on them.
//!
//! ```text
//! application ─▶ /dev/loopN ─▶ kernel ─▶ /dev/fuse ─▶ worker pool ─▶ server ─▶ BlockDevice
//!                direct I/O    FUSE      connection   │ ▲      what
//!                                        │            ▼ │      is meant
//!                                        │         schedule: which worker, and when
//!                                        └─▶ fd store keeps a copy while no process serves
//! ```
//!
//! One directory shows each volume as a regular file, which only its user may open; a loop device
//! on such a file is the volume as a block device of the kernel. The server keeps no state between
//! requests, so a process that is killed can be replaced: the next one takes the connection from
//! the fd store, has the kernel send again what was in flight, and no program sees an error.
//! Kernels before 6.9 cannot send again; there it serves what the killed process left in
//! [memory](in_flight).
//!
//! Invariants:
//!
//! - Nothing needs memory, or waits for another process, between a request and its reply.
//! - The serving process never opens, closes or examines a file that it serves. It would wait for
//!   itself, beyond killing; see [`HelperRunner`].
//! - One worker waits for requests; the others sleep unless there is work for them. It may do a
//!   flush without calling another one, if no request waits for that for more than milliseconds.
//! - However many flushes wait for a disk, a worker is left for reads and writes.
//!
//! Locks: `Export::devices`, held while a helper command runs, because it is what keeps two of them
//! apart; no request waits for it. `Export::known`, the schedule's waiting flushes, the pool's
//! count of workers and the files that are open, held for some instructions. No thread that holds
//! one of them takes another.
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
