//! Operation of the REST interfaces that a request asks for, and the rights that it takes.
//!
//! ```text
//! method, URI ─▶ Operation: one of api's tables, a name, parameters ─▶ Permission: role, reach
//! ```
//!
//! It is what stands between a network and the daemon, so it does nothing else: no I/O, no state.
#![forbid(unsafe_code)]

mod operation;
mod permission;
mod role;

pub use operation::{Operation, Unrecognized, decode};
pub use permission::{Permission, Reach, permission};
pub use role::Role;
