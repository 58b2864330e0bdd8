//! `memlane-csi`: CSI driver that provides volumes to the pods of one Kubernetes node.
//!
//! ```text
//! kubelet, external-provisioner ─▶ server ─┬─▶ identity
//!                                          ├─▶ controller ─▶ class, names
//!                                          └─▶ node ─▶ mounts, filesystem, programs
//!                                               both ─▶ daemon: its REST interface
//! ```
//!
//! The driver keeps no state: names of volumes and snapshots are derived from those of the cluster,
//! mounts are in the kernel's table, and everything else is in the daemon. It may be killed at any
//! time, and calls may be repeated.
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

/// Maximum number of concurrent calls, including those that wait for an unavailable daemon.
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
    // At shutdown, calls that wait for an unavailable daemon are abandoned.
    program::block_on(BLOCKING_THREAD_COUNT_MAX, server::run(&sockets, &driver))
}
