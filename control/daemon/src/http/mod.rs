//! The REST interface over a Unix socket.
//!
//! | module | does |
//! |---|---|
//! | `interface` | runs the interface, from the start of the daemon to its end |
//! | `listener` | accepts connections, limits their number and their time |
//! | `readiness` | stage of the daemon, and responses to requests before and after it serves |
//! | `access` | decides which process has access, by the credentials of the peer |
//! | `routes` | maps paths to operations of the service |
//! | `places` | limits requests that may wait, so that others are always answered |
//! | `body`, `answer` | JSON in and out, problems as problem details |
//! | `metrics` | Prometheus text format |
//!
//! Operations block, so each runs on a thread for blocking work. This module itself never waits for
//! the engine or the kernel.

mod access;
mod answer;
mod body;
mod interface;
mod listener;
mod metrics;
mod places;
mod readiness;
mod routes;
#[cfg(test)]
mod tests;

pub(crate) use access::AccessRule;
pub(crate) use interface::Interface;
pub(crate) use readiness::Readiness;
