//! The block device that exports serve: requests of one volume, and the services of the engine's
//! owner that they use.

pub(crate) mod absent;
pub(crate) mod block_device;
pub(crate) mod discard;
pub(crate) mod hooks;
pub(crate) mod read;
pub(crate) mod volume;
pub(crate) mod write;
