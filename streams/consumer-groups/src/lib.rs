//! Consumer groups: members, assignments and committed offsets, without a network.
//!
//! [`Groups`] is Kafka's group coordinator as a state machine. Its owner passes in requests with
//! the time, and performs the resulting effects:
//!
//! ```text
//! request, now ──▶ Groups ──▶ Persist(record), …, Reply(ticket, response)
//!                    ▲            │
//!        load, start └── state log ◀┘
//! ```
//!
//! **Effects are ordered across all calls.** The owner appends records to the state log in that
//! order. It sends a reply only after the records of all earlier effects are durable, including
//! those of other calls. State changes in memory immediately, but no client observes a change
//! before it is durable, because each reply follows the records of all state that it is derived
//! from. So after a crash, the log contains everything that clients were told: acknowledged
//! commits, assignments and generations.
//!
//! **Every prefix of the log is a valid state.** The records of one call need not be appended
//! atomically; if some are lost, their requests were not answered. If a record cannot be appended,
//! the owner sends no later reply, discards the coordinator and creates a new one from the log
//! ([`Groups::load`], [`Groups::start`]).
//!
//! Each request is answered once: immediately, by a later call or by [`Groups::tick`]. The owner
//! drops replies to disconnected clients. All memory is bounded by [`Options`].
//!
//! The crate reads no clock, generates no seed, starts no threads and does no network I/O. The
//! owner authorizes access to groups and topics. It also provides the list of topics, and which of
//! them patterns may reveal to a member ([`Topics`]).
#![forbid(unsafe_code)]

mod admin_requests;
mod classic;
mod classic_requests;
mod consumer;
mod consumer_requests;
mod conversion;
mod effect;
mod embedded;
mod fields;
mod groups;
mod keys;
mod offset_fetch;
mod offset_requests;
mod offsets;
mod options;
mod subscriptions;
mod topics;
mod upkeep;
mod view;

pub use effect::{Caller, Effect, Record, Ticket};
pub use groups::{Groups, Usage};
pub use offset_requests::TransactionEnd;
pub use options::{MigrationPolicy, Options};
pub use topics::{Sight, TopicShape, Topics, Viewer};
pub use upkeep::{LoadError, LoadErrorKind, TickTime};
pub use view::{CommittedOffset, GroupView};
