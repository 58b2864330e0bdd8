//! Tests of the interface: requests go in at the router, answers are compared as JSON. The engine
//! is the real one on a small pool of its own; kernel block devices are pretended.

mod attachments;
mod durability;
mod exports;
mod house;
mod pool;
mod protocol;
mod snapshots;
mod volumes;

use house::{Answer, House};
