//! REST interface over a Unix socket: access control, JSON encoding, routing.

mod answer;
mod consoles;
mod listener;
mod routes;

pub(crate) use listener::{Access, run};
