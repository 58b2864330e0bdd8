//! Read-only HTTP interface for operators: health, readiness, status as JSON, and metrics for
//! Prometheus. It runs on a separate thread, so that it responds while requests wait for an
//! unavailable storage.

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
pub(crate) use notices::send_notices;
pub(crate) use state::{Operation, SqlMetrics};
pub(crate) use stop::Signals;
