//! Memory that another process shares with this one and can take away again: a [`FaultGuard`]
//! contains what would be a `SIGBUS`, and a [`LossFlag`] tells of it.
//!
//! Not a part of `kernel`, as it needs the types of `vm-memory`: a guard takes a mapping, never an
//! address. Unsafe code is confined to `sys`.

mod guard;
mod sys;

pub use guard::{FaultGuard, GUARD_COUNT_MAX, LossFlag};
