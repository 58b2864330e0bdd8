//! The functions that stand in front of the C library's, under its names.
//!
//! Each either does all of the call or hands it on unchanged. None unwinds, and none allocates for
//! a descriptor that it knows already.

mod aio;
mod data;
mod descriptors;
mod kernel_call;
mod mapping;
