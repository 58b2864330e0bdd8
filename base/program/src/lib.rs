//! Common parts of programs that run as services: startup, logging, signals, sockets and
//! connections.
//!
//! ```text
//! run ─▶ options ─▶ start_log ─▶ bind_in_place ─▶ ready ─▶ serve_all ─▶ Signals ─▶ stopping
//! ```
//!
//! The crate defines no paths, and no protocol except limits of HTTP/1.1. The program decides on
//! access, and on the number and duration of connections.
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
pub use start::{block_on, log_filter, run, serve_until_stopped, start_log, write_manual};
