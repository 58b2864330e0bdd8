//! A daemon that follows the image store of another until it is promoted.
//!
//! The crate `standby` follows, fetches and promotes. This module runs it on a thread, reports it
//! in events and in the status, and stores its state across restarts.

mod following;
mod lag;
mod rejoining;
mod role;
mod status;

pub(crate) use following::{Standby, StandbyKeeper, StandbyParts};
pub(crate) use role::{Start, promotion_at_start, role_at_start};
