//! Volumes on this node: staged once for each volume, published to each pod.
//!
//! What is mounted is asked of the kernel each time. A mount that is there and not what is wanted,
//! or dead, is replaced.

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
