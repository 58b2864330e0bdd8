//! Linux's asynchronous I/O, as libaio offers it.
//!
//! ```text
//! io_submit ─┬─▶ bypassed: done at once ──▶ events of the context ──┐
//!            └─▶ all others ──▶ the kernel's own context ───────────┴─▶ io_getevents
//! ```
//!
//! A context of ours stands for one of the kernel's and looks different from it, so that no
//! program takes it for the ring that the kernel shares. Requests on descriptors that are bypassed
//! are over when they are submitted: that takes less than handing them to another thread. Threads
//! that wait for events do so in the kernel, and are woken by a request that does nothing.
//!
//! As in libaio, errors are negative numbers that are returned, and `errno` is left alone.

mod calls;
mod collect;
mod context;
mod form;
mod interface;
mod submit;

pub(crate) use collect::Wait;
pub(crate) use form::{Event, Request};
pub(crate) use interface::{cancel, collect, destroy, set_up, submit};
