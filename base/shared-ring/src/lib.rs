//! The memory that the daemon shares with one client, and both halves of the protocol in it.
//!
//! ```text
//! client ── copies in, publishes an entry ──▶ lane: entries, completions, buffers ──▶ server
//!        ◀── sees the completion, copies out ──                    ── takes, serves, completes ──
//! ```
//!
//! - A connection is one sealed memory file of the server's making. It holds *lanes*: one thread of
//!   the client uses a lane at a time, and one thread of the server takes from all of them.
//! - A lane has [`SLOTS`] slots, each with a buffer of [`SLOT_BYTES`]. The client owns a slot until
//!   it publishes an entry that names it, the server until it completes it.
//! - Entries stand in a ring as long as there are slots, so that the line of an entry is free again
//!   whenever the client has a free slot. The server takes them in order and completes them in any.
//! - Either side may sleep, and says so first; the other one then wakes it.
//!
//! Everything in the memory can be changed by the client at any moment. The server reads each field
//! once, into a copy that it checks; what it owns, such as its place in each ring, is never read
//! from there. The client trusts the server, which can read what the client sends it anyway.
//! The layout is in `docs/formats/ring.md`.

#[cfg(not(loom))]
mod client;
#[cfg(not(loom))]
mod handshake;
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
pub use layout::{LANES_MAX, SLOT_BYTES, SLOTS, memory_bytes};
pub use lines::{
    CompletionLine, Entry, SleepLine, SubmissionLine, after_publishing, flags, operation,
};
#[cfg(not(loom))]
pub use server::{ServerRing, Taken, Taker, Ticket, Violation};
