//! The one way to wait for work: spin while traffic is recent, then block.
//!
//! A context switch costs ten to thirty times what serving a request costs, so a queue loop that
//! expects its next request soon does better to look for it again than to sleep. A [`Waiter`]
//! learns from recent waits whether that is so, and [`SpinPermits`] bound how many threads of the
//! process may spin at once. The cost is bounded:
//!
//! - One wait spins for a few times the typical wait, and for [`SPIN_MAX_DEFAULT`] unless told
//!   otherwise. When typical waits are longer than that, it does not spin at all, so that an idle
//!   process uses no processor time.
//! - While it spins, a thread offers its core to others every few looks, and stops when another
//!   took it. When spinning fails although waits are short, it is tried ever more rarely.
//! - A thread whose request came while it offered its core offers it at once the next time: on a
//!   single core, looking would only keep its clients from it.
//! - A thread that spins where its clients run goes to another core, now and then.
//! - Threads that find no permit left block at once.
//!
//! A loop that answers many requests at once, if many have come, gets larger batches by looking
//! less often where that pays; see [`Waiter::gather`].
//!
//! While traffic is recent, a [`CpuLatencyRequest`] keeps idle cores quick to wake, because every
//! request wakes its client at least. Each waiter takes part whose permits carry one.
//!
//! This crate knows nothing of files or sockets to serve: looking and blocking are handed in.
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
