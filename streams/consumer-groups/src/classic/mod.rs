//! Groups of the classic protocol, whose members assign partitions. Each rebalance collects all
//! members (JoinGroup), elects a leader, and distributes its assignment (SyncGroup).
//!
//! ```text
//!            join                 all joined            leader's sync
//! Empty ───────────▶ Preparing ───────────────▶ Completing ─────────▶ Stable
//!   ▲                  │   ▲                        │                   │
//!   └── none is left ──┘   └── join, leave, death ──┴───────────────────┘
//! ```
//!
//! The last stable generation and the highest generation number are durable. A rebalance in
//! progress is restarted after a restart.

mod group;
mod join;
mod phases;
mod record;
mod requests;

pub(crate) use group::{ClassicGroup, Member, Phase, Protocol, protocols_bytes, refused};
pub(crate) use join::Joining;
pub(crate) use requests::Committer;
