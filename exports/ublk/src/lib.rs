//! Volumes as block devices of the kernel, through its ublk driver.
//!
//! ```text
//! program ─▶ /dev/ublkbN ─▶ driver ─▶ queue threads ──▶ BlockDevice
//!                             ▲          │     ▲
//!                             │          ▼     │ answers
//!              results, data ─┴──────── late work: flushes, and data that is not in memory
//! ```
//!
//! - A device has a few queues, each with a thread that spins while traffic is recent
//!   (`base/adaptive-polling`) and waits only for requests. Operations that may wait for a disk are
//!   late work: one thread runs one flush for all waiting requests; other threads read.
//! - Devices outlive the process. The kernel keeps requests, including those in progress, and
//!   passes them to the next process, which finds its devices in a [registry](registry) and takes
//!   them over. Incomplete devices of a killed process are deleted. Devices of other programs are
//!   not changed; a mark in each device distinguishes them.
//! - Commands to the driver run on separate threads with a timeout, because some kernels have bugs
//!   that make commands hang.
//!
//! This crate uses volumes only as [`block_device::BlockDevice`]s with an id. It must not open a
//! device that it serves for writing.
//!
//! Lock order: the list of devices, then the registry. Serving threads take neither.
#![forbid(unsafe_code)]

mod adoption;
mod bounded;
mod driver;
mod export;
mod late;
mod openers;
mod queue_thread;
mod registry;
mod served;
mod serving;
mod sysfs;
mod volumes;

pub use export::{Attachment, Config, Export, Transfer};
pub use export_kit::{AttachError, AttachErrorKind, Traffic};
pub use volumes::{VolumeId, Volumes};
