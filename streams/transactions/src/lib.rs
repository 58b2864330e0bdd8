//! Kafka's transaction coordinator, and the handing out of producer ids.
//!
//! ```text
//!          requests, time                    effects, in order
//! owner ────────────────────▶ Transactions ─────────────────────▶ owner
//!          markers written                   Persist, WriteMarkers, Reply
//!
//!                   add, write                   EndTxn
//! Empty ───────────────────────▶ Ongoing ─────────────────────▶ PrepareCommit ──▶ CompleteCommit
//!   ▲                              │  EndTxn, timeout, new instance                    │
//!   │                              └─────────────▶ PrepareAbort ──▶ CompleteAbort      │
//!   └──── InitProducerId ◀──────────────────────────────────────────────┴──────────────┘
//! ```
//!
//! [`Transactions`] is a state machine: it knows no network, no disk and no clock, and starts no
//! thread. One task owns it, hands in requests with the time and carries out the [`Effect`]s.
//!
//! **The rule of effects.** They are carried out in the order in which they came. A reply is sent,
//! and markers are begun, only when every record before them is durable in the state log. Where a
//! record cannot be made durable, nothing after it is carried out: the owner tries it again, or
//! drops the state and loads the log anew. So no client learns what a crash can take back. An
//! owner may know better: what speaks of nothing but what the same crash takes too need not wait.
//!
//! **After a crash** the owner loads the state log and calls [`Transactions::resume`], which has
//! the markers of every transaction written that was about to end. Some may be there already:
//! a marker without an open transaction changes nothing.
//!
//! The rules are those of KIP-98, KIP-360 and KIP-890 and of Kafka's own coordinator.
#![forbid(unsafe_code)]

mod adding;
mod effect;
mod known;
mod listing;
mod participants;
mod producer_ids;
mod state_log;
mod table;
mod transaction;
mod transactions;

pub use effect::{Caller, Effect, Markers, MarkersTicket, Response, Ticket};
pub use known::Known;
pub use participants::Participants;
pub use state_log::{Record, StateError, StateErrorKind};
pub use transaction::{Outcome, Producer};
pub use transactions::{
    STATE_VALUE_BYTES_MAX, Settings, TRANSACTIONAL_ID_BYTES_MAX, Transactions, WAITING_COUNT_MAX,
    Write,
};
