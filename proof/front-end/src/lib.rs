//! A front end of vhost-user-blk without a virtual machine: what QEMU and a guest's driver do
//! together, as far as tests need it.
//!
//! ```text
//! test ── FrontEnd ── socket ── export
//!           │  └─ what is in flight, kept over reconnections
//!           └── Driver ── ring in shared memory ── export
//! ```
//!
//! - [`FrontEnd`] shares memory, sets rings up and comes back after the export was killed, with the
//!   rings as they were and the memory of what is in flight, as QEMU does.
//! - [`Driver`] is one queue: it puts requests into its ring and takes answers out, and notices
//!   when it gets one that it did not wait for. It can also write any nonsense into the ring.
#![forbid(unsafe_code)]

mod driver;
mod front_end;
mod layout;

pub use driver::{Answer, Ask, Driver, Request, Status};
pub use front_end::{FrontEnd, Options};
pub use layout::{Descriptor, Layout};
