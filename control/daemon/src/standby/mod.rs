//! A daemon that follows the image store of another until somebody promotes it.
//!
//! What is followed, fetched and promoted is the crate `standby`'s matter. Here it has a thread, is
//! told of in events and in the status, and is remembered across starts.

mod following;
mod lag;
mod role;
mod status;

pub(crate) use following::{Standby, StandbyKeeper, StandbyParts};
pub(crate) use role::{Start, promotion_at_start, role_at_start};
