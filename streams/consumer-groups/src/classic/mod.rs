//! Groups whose members assign partitions themselves: each rebalance gathers all members
//! (JoinGroup), elects one of them to assign, and hands out what it says (SyncGroup).
//!
//! ```text
//!            join                 all joined            leader's sync
//! Empty ───────────▶ Preparing ───────────────▶ Completing ─────────▶ Stable
//!   ▲                  │   ▲                        │                   │
//!   └── none is left ──┘   └── join, leave, death ──┴───────────────────┘
//! ```
//!
//! What is durable is the last stable generation and the highest number that was handed out; a
//! rebalance that was going on is begun anew after a restart.

mod group;
mod join;
mod phases;
mod record;
mod requests;

pub(crate) use group::{ClassicGroup, Member, Phase, Protocol, protocols_bytes, refused};
pub(crate) use join::Joining;
pub(crate) use requests::Committer;
