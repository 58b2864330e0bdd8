//! The shell of a program that runs as a service: its start, its log, the signals that it heeds,
//! the sockets that it serves at, and how it takes connections in.
//!
//! ```text
//! run ─▶ options ─▶ start_log ─▶ bind_in_place ─▶ ready ─▶ serve_all ─▶ Signals ─▶ stopping
//! ```
//!
//! It knows no path and no protocol beyond the limits of HTTP/1.1, and decides nothing: who may
//! speak, how many and for how long is said by the program.
#![forbid(unsafe_code)]

mod connections;
mod host;
mod http;
#[cfg(feature = "reference")]
mod reference;
mod seats;
mod signals;
mod sockets;
mod start;

pub use connections::{accept, serve_all};
pub use host::host_name;
pub use http::{ArrivingBody, Seated, SeatedBody, http1_limited, serve_http1};
#[cfg(feature = "reference")]
pub use reference::check_reference;
pub use seats::{Seat, SeatEnd, Seats};
pub use signals::{Signals, Wish};
pub use sockets::{bind_in_place, remove_if_there};
pub use start::{block_on, run, serve_until_stopped, start_log, write_manual};
