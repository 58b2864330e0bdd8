//! Conformance suite that every access path to a device must pass, through a real client.
//!
//! A [`Subject`] is a client's view of one device. [`check`] runs every case on it and panics with
//! the names of the failed ones. The suite needs exclusive use of the device: it overwrites it, and
//! needs at least [`SIZE_BYTES_MIN`].
//!
//! The suite knows no protocol. A subject describes the limits of its protocol by [`Abilities`].
//! Cases that exceed them are skipped, and the count that [`check`] returns excludes them.
#![forbid(unsafe_code)]

mod cases;
mod direct;
mod file;
mod ordering;
mod pattern;
mod ranges;
mod refusals;
mod subject;
mod zeroing;

pub use cases::{case_count, check, check_read_only, run};
pub use direct::Direct;
pub use file::FileSubject;
pub use subject::{Abilities, Refusal, SIZE_BYTES_MIN, Subject};
