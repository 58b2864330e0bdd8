//! Hooks: functions that replace the C library's functions of the same names.
//!
//! Each hook either serves the whole call or passes it on unchanged. No hook unwinds, or allocates
//! memory for a known descriptor.

mod aio;
mod data;
mod descriptors;
mod kernel_call;
mod mapping;
