//! Checks that every way to a device must pass, through a real client of that way.
//!
//! A [`Subject`] is a client's view of one device. [`check`] runs every case on it and panics with
//! the names of those that do not hold. The device must be the suite's alone: it is written
//! over, and must have [`SIZE_BYTES_MIN`] at least.
//!
//! The suite knows no protocol. What a protocol cannot express its subject says in [`Abilities`];
//! cases that need it are left out, and the count that [`check`] returns says so.
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
