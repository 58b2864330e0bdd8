//! Messages of the Container Storage Interface 1.13 and of the kubelet's plugin registration. Only
//! the fields that this driver uses are declared; others are ignored.
//!
//! Enumerations are plain numbers. Alternatives (`oneof`) are separate optional fields, of which at
//! most one is set.

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
