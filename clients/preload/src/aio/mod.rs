//! Linux's asynchronous I/O, as libaio offers it.
//!
//! ```text
//! io_submit ─┬─▶ bypassed: done at once ──▶ the ring that the program holds ──▶ io_getevents,
//!            ├─▶ bypassed, several at a time: under way on a lane ─────────────▶ or its own look
//!            └─▶ all others: the context is the kernel's from then on
//! ```
//!
//! Requests on descriptors that are bypassed are over when they are submitted: that takes less
//! than handing them to another thread. Their events lie where the kernel would put them. Programs
//! that keep several under way and collect them by calls alone have them on a lane: see `flight`. A
//! context to which something else is submitted is the kernel's, as if this library were not there:
//! only the kernel can put events there when nobody calls. See `ring`.
//!
//! As in libaio, errors are negative numbers that are returned, and `errno` is left alone.

mod calls;
mod collect;
mod context;
mod flight;
mod form;
mod interface;
mod ring;
mod submit;
mod under_way;

pub(crate) use calls::SYS_IO_PGETEVENTS;
pub(crate) use collect::collect;
pub(crate) use context::{destroy, give_back, settle_all};
pub(crate) use form::{Event, Request, Wait};
pub(crate) use interface::{cancel, set_up};
pub(crate) use submit::submit;
pub(crate) use under_way::forget_all;
