//! Volumes as files over `/dev/fuse`, and as loop devices on them.
//!
//! ```text
//! application ─▶ /dev/loopN ─▶ kernel ─▶ /dev/fuse ─▶ crew ─▶ server ─▶ BlockDevice
//!                direct I/O    FUSE      connection   who      what
//!                                        │            serves   is meant
//!                                        └─▶ holder keeps a copy while nobody serves
//! ```
//!
//! One directory shows each volume as a regular file, which only its user may open; a loop device
//! on such a file is the volume as a block device of the kernel. The server keeps no state between
//! requests, so a process that is killed can be replaced: the next one takes the connection from
//! the holder, has the kernel send again what was in flight, and nobody above sees an error.
//!
//! Invariants:
//!
//! - Nothing needs memory, or waits for another process, between a request and its reply.
//! - The serving process never opens, closes or examines a file that it serves. It would wait for
//!   itself, beyond killing; see [`ErrandRunner`].
//! - One worker waits for requests; the others sleep unless there is work for them. It may do a
//!   flush without calling another one, if nobody has to wait for that for more than milliseconds.
//! - However many flushes wait for a disk, a worker is left for reads and writes.
//!
//! Locks: `Export::devices`, held while an errand runs, because it is what keeps two errands apart;
//! no request waits for it. `FlushDesk::state` and `Crew`'s count of workers, held for some
//! instructions. Nobody who holds one of them takes another.
#![forbid(unsafe_code)]

mod connection;
mod crew;
mod errand;
mod errand_process;
mod errand_runner;
mod error;
mod export;
mod files;
mod flush_desk;
mod habits;
mod holder;
mod mount;
mod pace;
mod reply;
mod request;
mod roster;
mod server;
mod watch;

pub use errand_process::run_errand;
pub use errand_runner::ErrandRunner;
/// The names under which the daemon knows them.
pub use error::{DeadDevice, FuseError, FuseErrorKind};
pub use export::{Attachment, Config, Export, Keep, Origin};
pub use export_kit::Traffic;
pub use files::{FileEntry, FileId, Files};
