//! Ring in memory shared by the daemon and one client, with both halves of the protocol.
//!
//! ```text
//! client ── copies in, publishes an entry ──▶ lane: entries, completions, buffers ──▶ server
//!        ◀── sees the completion, copies out ──                    ── takes, serves, completes ──
//! ```
//!
//! - A connection is one sealed memory file, which the server creates. It contains *lanes*: one
//!   thread of the client uses a lane at a time, and one thread of the server takes entries from
//!   all lanes.
//! - A lane has [`SLOTS`] slots, each with a buffer of [`SLOT_BYTES`]. The client owns a slot until
//!   it publishes an entry that names it, the server until it completes it.
//! - The ring of entries has as many elements as there are slots, so an element is free whenever
//!   the client has a free slot. The server takes entries in order and completes them in any order.
//! - Either side announces before it sleeps, and the other side then wakes it.
//!
//! The client can change everything in the memory at any moment. The server reads each field once,
//! into a copy that it validates. Its own state, such as its position in each ring, is never read
//! from the memory. The client trusts the server, which receives the client's data anyway. The
//! layout is in `docs/formats/ring.md`.

#[cfg(not(loom))]
mod client;
#[cfg(not(loom))]
mod handshake;
#[cfg(not(loom))]
mod layout;
mod lines;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod server;
#[cfg(not(loom))]
mod sys;

#[cfg(not(loom))]
pub use client::{ClientLane, ClientRing, LaneWatch, Slot};
#[cfg(not(loom))]
pub use handshake::{
    Access, Answer, HandshakeError, MESSAGE_BYTES_MAX, Opened, Target, VERSION, receive_answer,
    receive_request, send_answer, send_refusal, send_request,
};
#[cfg(not(loom))]
pub use layout::{LANES_MAX, SLOT_BYTES, SLOTS, memory_bytes};
pub use lines::{
    CompletionLine, Entry, SleepLine, SubmissionLine, after_publishing, flags, operation,
};
#[cfg(not(loom))]
pub use server::{ServerRing, Taken, Taker, Ticket, Violation};
