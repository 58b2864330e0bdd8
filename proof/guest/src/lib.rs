//! Virtual machines that run the real programs, and whose power tests can cut.
//!
//! ```text
//! host                                             guest: Debian's kernel, busybox, our programs
//! test ── Guest ── Channel ── socket ── QEMU ── serial port ── agent ── any program
//!           │         run, start, forward                        │
//!           └── disks: File, or VolatileDisk behind NBD        /dev/vda …
//! ```
//!
//! - [`Image`] is the contents of guests: a kernel of Debian 12, unpacked and not installed, and an
//!   archive of programs with their libraries. One image serves many guests.
//! - [`Guest`] is one run of it under QEMU without KVM, so it verifies correctness, not speed.
//!   Commands have time limits, and dropping a guest ends it.
//! - [`MachinesHost`] is a separate libvirt for a test, with `memlane-machines` in front of it.
//! - [`VolatileDisk`] is the fault model of a power cut. Its module describes what each kind of
//!   disk verifies.
//!
//! Everything here uses only external interfaces of the product. A host without QEMU is an error,
//! never a reason to skip.
#![forbid(unsafe_code)]

mod archive;
mod channel;
mod daemon;
mod disk_server;
mod forward;
mod frame;
mod image;
mod kernel;
mod libraries;
mod machine;
mod machines_host;
mod modules;
mod process;
mod volatile_disk;

pub use daemon::GuestDaemon;
pub use frame::{FRAME_BYTES_MAX, Frame, FrameKind};
pub use image::{Image, ImageContents};
pub use kernel::{Kernel, Release};
pub use machine::{Disk, Guest, GuestOptions};
pub use machines_host::{FROM_SCRIPT, FROM_SCRIPT_KERNEL_ARGS, MachinesHost};
pub use process::GuestProcess;
pub use volatile_disk::{Cut, VolatileDisk};
