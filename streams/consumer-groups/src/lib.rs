//! Groups of consumers: members, assignments and committed offsets, without a network.
//!
//! [`Groups`] is the group coordinator of Kafka as a state machine. Its owner hands it requests
//! with the time, and does what it asks in effects:
//!
//! ```text
//! request, now ──▶ Groups ──▶ Persist(record), …, Reply(ticket, response)
//!                    ▲            │
//!        load, start └── state log ◀┘
//! ```
//!
//! **Effects are in order, over all calls.** The owner appends records to the state log in that
//! order, and sends a reply only once every record of an effect before it is durable, whichever
//! call that came from. State changes in memory at once, but nobody hears of a change before it is
//! durable: each reply stands behind the records of all that it was made from. So after a crash the
//! log holds all that any client was told: commits that were acknowledged, assignments and
//! generations that were handed out.
//!
//! **Any beginning of the log is a state of its own.** The records of one call need not be appended
//! at once; what is cut off belongs to requests that were not answered. Where a record cannot be
//! appended, the owner sends no reply behind it, drops the coordinator and makes a new one from the
//! log ([`Groups::load`], [`Groups::start`]).
//!
//! A request is answered once: now, or later by another call or by [`Groups::tick`]. Replies to
//! clients that have gone are the owner's to drop. Everything is bounded by [`Options`].
//!
//! It reads no clock, draws no seed, starts no thread and knows no network. Whether clients may use
//! groups and topics its owner checks before; which topics there are, and which of them patterns
//! may show to a member, it asks its owner ([`Topics`]).
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
pub use groups::Groups;
pub use offset_requests::TransactionEnd;
pub use options::{MigrationPolicy, Options};
pub use topics::{Sight, TopicShape, Topics, Viewer};
pub use upkeep::{LoadError, LoadErrorKind, TickTime};
pub use view::{CommittedOffset, GroupView};
