//! Targets of measurements: volumes and alternatives that are set up, filled and removed, and fio
//! jobs on them.
//!
//! A [`Target`] owns all of its resources and releases them when dropped, including after an error
//! or Ctrl-C. Nothing is written to a device that this crate did not create, except one that the
//! user permitted to destroy and that was found empty.
mod accounts;
mod awake;
mod control_group;
mod cpu;
mod cpu_group;
mod device;
pub mod fio;
mod kinds;
mod lazy;
mod measure;
mod memory_group;
mod own_daemon;
mod target;
mod versions;
mod vhost_driver;
mod vmstat;

pub use accounts::{Accounts, Opening, Spent};
pub use awake::CoresAwake;
pub use cpu::{CpuMeter, wait_until_idle};
pub(crate) use cpu::{Machine, stay_idle};
pub use cpu_group::{CpuBackend, CpuGroup};
pub use device::{check_is_free, counts, since as counts_since};
pub use kinds::{Kind, Layout, Place, Spec, daemon_counts, missing_programs};
pub use lazy::LazyTarget;
pub use measure::{Measured, calibrate, check_contents, counted_copy, fill, measure};
pub use memory_group::{MemoryBackend, MemoryGroup};
pub(crate) use own_daemon::OwnDaemon;
pub use target::{Access, AfterKill, Durability, Target};
pub use versions::versions;
pub(crate) use vhost_driver::{VhostDriver, VhostJob};
pub use vmstat::{INTERVAL as VMSTAT_INTERVAL, Second, Vmstat};
