//! Tests of the REST interface: requests enter at the router, and responses are compared as JSON.
//! The engine is real, on a small pool; kernel block devices are simulated.

mod attachments;
mod durability;
mod exports;
mod house;
mod pool;
mod protocol;
mod snapshots;
mod volumes;

use house::{Answer, House};
