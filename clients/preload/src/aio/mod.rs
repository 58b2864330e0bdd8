//! Asynchronous I/O of Linux, with libaio's interface.
//!
//! ```text
//! io_submit ─┬─▶ bypassed: done at once ────────────▶ the program's event ring ─▶ io_getevents,
//!            ├─▶ bypassed, several in flight: a lane ────────────────────────────▶ or direct reads
//!            └─▶ all others: the kernel serves the context from then on
//! ```
//!
//! Requests on bypassed descriptors are complete when they are submitted, which costs less than
//! passing them to another thread. Their events are stored where the kernel would store them.
//! Programs that keep several requests in flight and collect events only by calls use a lane: see
//! `flight`. When any other request is submitted, the context is given back to the kernel, because
//! only the kernel can add events asynchronously. See `ring`.
//!
//! As in libaio, errors are returned as negative numbers, and `errno` is not changed.

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
