//! A daemon that follows the image store of another until it is promoted.
//!
//! The crate `standby` follows, fetches and promotes. This module runs it on a thread, reports it
//! in events and in the status, and remembers it across starts.

mod following;
mod lag;
mod role;
mod status;

pub(crate) use following::{Standby, StandbyKeeper, StandbyParts};
pub(crate) use role::{Start, promotion_at_start, role_at_start};
