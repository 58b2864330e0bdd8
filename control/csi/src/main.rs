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

use anyhow::Context;
use clap::CommandFactory;
use tracing_subscriber::EnvFilter;

use crate::driver::Driver;
use crate::options::Options;
use crate::server::Sockets;

/// Calls that are under way at once. Those that wait for a daemon that is away count.
const BLOCKING_THREAD_COUNT_MAX: usize = 128;

fn main() -> ExitCode {
    service_manager::die_of_panics();
    let options = option_file::read_options().map_err(anyhow::Error::from);
    match options.and_then(start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("memlane-csi: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(options: Options) -> anyhow::Result<()> {
    if let Some(folder) = &options.man {
        return clap_mangen::generate_to(Options::command(), folder)
            .with_context(|| format!("cannot write to {}", folder.display()));
    }
    let filter = EnvFilter::try_new(&options.log)
        .with_context(|| format!("--log {:?} is no filter", options.log))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
    let sockets = Sockets::of(&options);
    let driver = Arc::new(Driver::new(&options)?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREAD_COUNT_MAX)
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let result = runtime.block_on(server::run(&sockets, &driver));
    // Calls that wait for a daemon that is away are given up.
    runtime.shutdown_background();
    result
}
