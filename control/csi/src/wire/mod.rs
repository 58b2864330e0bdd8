//! Messages of the Container Storage Interface 1.13, and of the kubelet's registration, by the
//! numbers of their fields: those that this driver reads or writes, others are passed over.
//!
//! Enumerations are numbers, and of the alternatives of one field at most one is there, as on the
//! wire.

mod identity;
mod numbers;
mod pods;
mod snapshots;
mod volumes;

pub(crate) use identity::*;
pub(crate) use numbers::*;
pub(crate) use pods::*;
pub(crate) use snapshots::*;
pub(crate) use volumes::*;
