//! Groups that the coordinator assigns partitions to (KIP-848): members only send heartbeats, and
//! each goes from its assignment to its target at its own pace.
//!
//! ```text
//! a member comes, leaves, or           members' targets      each member's assignment,
//! subscribes; topics change    ──▶     for that epoch   ──▶  heartbeat by heartbeat
//!     group epoch + 1                  assignment epoch      member epoch
//! ```
//!
//! A partition has one owner: the member that was assigned it and has neither said that it gave it
//! up, nor left, nor been dropped. A member gives up first what it is to lose, and only then hears
//! of the new epoch; what it is to get it gets once nobody owns it.
//!
//! Each record stands for itself. The group's epoch is stored before what made it rise, the
//! assignment epoch after all targets: a log that is cut off between them has targets that are out
//! of date, and says so.

mod assignors;
mod classic_members;
mod group;
mod heartbeat;
mod members;
mod named;
mod reconcile;
mod record;
mod targets;

pub(crate) use assignors::is_known_assignor;
pub(crate) use group::{
    ClassicTerms, ConsumerGroup, Member, Partition, Partitions, Profile, by_topic,
};
pub(crate) use heartbeat::Beat;
pub(crate) use named::{named, resolve};
pub(crate) use record::{KIND_CONSUMER, KIND_CONVERTED, decode_member, decode_target};
