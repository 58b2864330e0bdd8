//! A front end of vhost-user-blk without a virtual machine: the parts of QEMU and of a guest's
//! driver that tests need.
//!
//! ```text
//! test ── FrontEnd ── socket ── export
//!           │  └─ what is in flight, kept over reconnections
//!           └── Driver ── ring in shared memory ── export
//! ```
//!
//! - [`FrontEnd`] shares memory, sets up rings and reconnects after the export was killed, with the
//!   rings and the in-flight region preserved, like QEMU.
//! - [`Driver`] is one queue: it puts requests into its ring and takes answers, and detects
//!   unexpected ones. It can also write arbitrary bytes into the ring.
#![forbid(unsafe_code)]

mod driver;
mod front_end;
mod layout;

pub use driver::{Answer, Ask, Driver, Request, Status};
pub use front_end::{FrontEnd, Options};
pub use layout::{Descriptor, Layout};
