//! The exports. Each has one small module that alone uses the types of its crate.

mod catalog;
mod devices;
mod fuse;
mod generations;
mod metered;
mod nbd;
mod ring;
mod ublk;
mod vhost_user;

pub(crate) use catalog::Catalog;
pub(crate) use devices::{DeviceFailure, KernelDevices, OtherUser};
pub(crate) use fuse::{FuseDevices, run_command};
pub(crate) use metered::{BOUNDS_US, Latencies, TIMED_ONE_IN, Timed, TimesSeen, VolumeTraffic};
pub(crate) use nbd::{NbdExport, NbdParts};
pub(crate) use ring::{RingExport, RingParts};
pub(crate) use ublk::UblkDevices;
pub(crate) use vhost_user::{VhostUserCounts, VhostUserExports};
