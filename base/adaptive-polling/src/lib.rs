//! Adaptive waiting for work: spin while traffic is recent, then block.
//!
//! A context switch costs ten to thirty times as much as serving a request, so a queue loop that
//! expects its next request soon should poll instead of sleeping. A [`Waiter`] decides this from
//! recent waits, and [`SpinPermits`] limit the number of spinning threads of the process. The cost
//! is bounded:
//!
//! - A wait spins for at most a few times the typical wait, and at most a limit, by default
//!   [`SPIN_MAX_DEFAULT`]. If typical waits are longer than the limit, it does not spin at all, so
//!   an idle process uses no CPU time.
//! - A spinning thread yields its core every few polls, and stops spinning when another thread
//!   needs it. If spinning fails although waits are short, it is tried increasingly rarely.
//! - A thread whose last request arrived while it yielded its core yields immediately at the next
//!   wait: on a single core, polling would only delay its clients.
//! - A thread that spins on the core of its clients occasionally moves to another core.
//! - Threads without a permit block immediately.
//!
//! A loop that answers requests in batches gets larger batches by polling less often, if that is
//! beneficial; see [`Waiter::gather`].
//!
//! While traffic is recent, a [`CpuLatencyRequest`] keeps the wake-up latency of idle cores low,
//! because every request wakes at least its client. Waiters whose permits contain one take part.
//!
//! This crate does not depend on files or sockets: the caller passes functions for polling and
//! blocking.
#![forbid(unsafe_code)]

mod cpu_latency;
mod crowd;
mod doubt;
mod gathering;
mod hold;
mod machine;
mod permits;
mod waiter;

pub use cpu_latency::{CpuLatencyError, CpuLatencyRequest, CpuLatencyState};
pub use machine::{Machine, ThisMachine};
pub use permits::SpinPermits;
pub use waiter::{SPIN_MAX_DEFAULT, Waiter};
