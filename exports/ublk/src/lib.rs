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
//!   (`base/adaptive-polling`) and waits for nothing but requests. What may wait for a disk is left
//!   to late work: one thread flushes, once for everything that waits; the others read.
//! - Devices outlive the process. The kernel keeps requests, also those that were being served,
//!   and gives them to the next process, which finds its devices in a [registry](registry) and
//!   takes them over. What a killed one left half made is deleted; devices of others are not
//!   touched, and a mark in each tells them apart.
//! - Commands to the driver run on threads of their own and have a time limit, because kernels
//!   have had bugs that never answer them.
//!
//! This crate reaches a volume only as a [`block_device::BlockDevice`] with a number. It must not
//! open a device that it serves in a way that writes to it.
//!
//! Order of locks: the list of devices, then the registry. Neither is held by a thread that serves.
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
