//! What is measured: volumes and what others offer, set up, filled and taken down; and fio on them.
//!
//! A [`Target`] owns everything that was made for it and takes it down when dropped, also after an
//! error or Ctrl-C. Nothing is written to a device that this crate did not create, except to one
//! that the user named for destruction and that proved empty.
mod accounts;
mod awake;
mod cpu;
mod cpu_group;
mod device;
pub mod fio;
mod kinds;
mod lazy;
mod measure;
mod target;
mod versions;

pub use accounts::{Accounts, Opening, Spent};
pub use awake::CoresAwake;
pub use cpu::{CpuMeter, wait_until_idle};
pub use cpu_group::{CpuBackend, CpuGroup};
pub(crate) use device::since as counts_since;
pub use device::{check_is_free, counts};
pub use kinds::{Kind, Layout, Place, Spec, missing_programs};
pub use lazy::LazyTarget;
pub use measure::{Measured, calibrate, check_contents, fill, measure};
pub use target::{Access, AfterKill, Durability, Target};
pub use versions::versions;
