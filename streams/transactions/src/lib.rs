//! Kafka's transaction coordinator, and the allocation of producer ids.
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
//! [`Transactions`] is a state machine without network, disk, clock or threads. One task owns it,
//! passes in requests with the time, and performs the resulting [`Effect`]s.
//!
//! **The rule of effects.** The owner performs effects in order. It sends a reply, and starts to
//! write markers, only after every preceding record is durable in the state log. If a record cannot
//! be made durable, no later effect is performed: the owner retries the record, or discards the
//! state and loads the log again. Therefore no client observes state that a crash can revert.
//! Exception: the owner need not wait with an effect that only concerns state which the same crash
//! would lose.
//!
//! **After a crash** the owner loads the state log and calls [`Transactions::resume`], which writes
//! the markers of every transaction that was about to end. Some markers may exist already: a marker
//! without an open transaction has no effect.
//!
//! The rules are those of KIP-98, KIP-360 and KIP-890, and of Kafka's own coordinator.
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
