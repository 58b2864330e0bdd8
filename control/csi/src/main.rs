//! `memlane-csi`: volumes for the pods of one Kubernetes node, by the Container Storage Interface.
//!
//! ```text
//! kubelet, external-provisioner ─▶ server ─┬─▶ identity
//!                                          ├─▶ controller ─▶ class, names
//!                                          └─▶ node ─▶ mounts, filesystem, programs
//!                                               both ─▶ daemon: its REST interface
//! ```
//!
//! It holds no state: names of volumes and snapshots follow from those of claims, mounts are in the
//! kernel's table, and all else is the daemon's. It may die at any time, and each call may come
//! again.
#![forbid(unsafe_code)]

mod authority;
mod busy;
mod capability;
mod class;
mod controller;
mod daemon;
mod driver;
mod identity;
mod names;
mod node;
mod options;
mod server;
mod wire;

use std::process::ExitCode;
use std::sync::Arc;

use crate::driver::Driver;
use crate::options::Options;
use crate::server::Sockets;

/// Calls that are under way at once. Those that wait for a daemon that is away count.
const BLOCKING_THREAD_COUNT_MAX: usize = 128;

fn main() -> ExitCode {
    program::run(|options: Options| match &options.man {
        Some(folder) => program::write_manual::<Options>(folder),
        None => start(&options),
    })
}

fn start(options: &Options) -> anyhow::Result<()> {
    program::start_log(&options.log)?;
    let sockets = Sockets::of(options);
    let driver = Arc::new(Driver::new(options)?);
    // At the end, calls that wait for a daemon that is away are given up.
    program::block_on(BLOCKING_THREAD_COUNT_MAX, server::run(&sockets, &driver))
}
