//! Interface of the broker for operators: whether it lives and is ready, what it does, in JSON and
//! for Prometheus. It changes nothing, and is served by a thread of its own, so that it answers
//! while requests wait for a storage that is away.

mod answers;
mod counters;
mod errors;
mod interface;
mod metrics;
mod notices;
mod state;
mod stop;
mod views;

pub(crate) use counters::{Counters, Flow, Timed};
pub(crate) use errors::error_code_of;
pub(crate) use interface::{HttpPlaces, Interface};
pub(crate) use notices::keep_alive;
pub(crate) use state::{Operation, SqlMetrics};
pub(crate) use stop::Signals;
