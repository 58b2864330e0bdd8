//! Node service: stages each volume once, and publishes it to each pod.
//!
//! Mounts are looked up in the kernel's table each time. A mount that is wrong or dead is replaced.

mod filesystem;
mod group;
mod health;
mod mounts;
mod paths;
mod programs;
mod publish;
mod stage;
mod usage;

pub(crate) use mounts::write_back;
