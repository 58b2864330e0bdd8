//! Containment of `SIGBUS` in memory that another process shares and can revoke: a [`FaultGuard`]
//! replaces lost memory by zeros, and a [`LossFlag`] reports that.
//!
//! The crate is separate from `kernel` because it depends on the types of `vm-memory`: a guard is
//! created for a mapping, never for an address. Unsafe code is confined to `sys`.

mod guard;
mod sys;

pub use guard::{FaultGuard, GUARD_COUNT_MAX, LossFlag};
