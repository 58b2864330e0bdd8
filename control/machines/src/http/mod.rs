//! The REST interface over a Unix socket: who may speak, JSON in and out, paths to operations.

mod answer;
mod consoles;
mod listener;
mod routes;

pub(crate) use listener::{Access, run};
