//! Groups with server-side assignment (KIP-848). Members only send heartbeats, and each moves from
//! its current to its target assignment at its own pace.
//!
//! ```text
//! a member comes, leaves, or           members' targets      each member's assignment,
//! subscribes; topics change    ──▶     for that epoch   ──▶  heartbeat by heartbeat
//!     group epoch + 1                  assignment epoch      member epoch
//! ```
//!
//! Each partition has at most one owner: the member to which it was assigned, until it confirms the
//! revocation, leaves or is removed. A member first revokes partitions, and only then learns the
//! new epoch. New partitions are assigned once they have no owner.
//!
//! Each record is valid on its own. The group epoch is stored before the change that caused it, and
//! the assignment epoch after all targets. If the log ends between them, the targets are
//! recognizably outdated.

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
