//! Tests of the REST interface: requests enter at the router, and responses are compared as JSON.
//! The engine is real, on a small pool; kernel block devices are simulated.

mod attachments;
mod durability;
mod exports;
mod fixture;
mod pool;
mod protocol;
mod snapshots;
mod volumes;

use fixture::{Answer, Fixture};
