//! `run-kubernetes`: a Kubernetes cluster of one node, with claims on volumes of Memlane.
//!
//! Kubernetes and the sidecar programs of the driver are built from Go modules. containerd and etcd
//! are Debian's. All are cached in `target/kubernetes`. Building them takes half an hour.
//!
//! The cluster has separate namespaces, folders and control groups, which end with it. It uses the
//! manifests of `deploy/kubernetes` as the guide says, then runs the tutorial's commands verbatim.
//!
//! ```text
//! run-kubernetes                   fetches, makes images and namespaces, checks for remains
//!   └─ run-kubernetes inside …     etcd, API server, controllers, containerd, kubelet; scenarios
//!        └─ memlaned               on the "host", outside of pods
//! ```
#![forbid(unsafe_code)]

mod cluster;
mod host;
mod images;
mod kubectl;
mod objects;
mod parts;
mod scenarios;
mod services;
mod tutorial;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Error, Result};
use system::Interruption;

use crate::cluster::Cluster;
use crate::parts::Parts;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ran = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run(),
        ["fetch"] => Parts::fetched().map(drop),
        ["inside", folder] => run_inside(Path::new(folder)),
        _ => Err(Error::msg("usage: run-kubernetes [fetch]")),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("run-kubernetes: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    Interruption::listen()?;
    host::run(&Parts::fetched()?)
}

/// Starts a cluster in the namespaces of this process, and runs all scenarios in it.
fn run_inside(folder: &Path) -> Result<()> {
    let start = Instant::now();
    let mut cluster = Cluster::start(folder)?;
    eprintln!("measured: the cluster is ready after {:.1} s", start.elapsed().as_secs_f64());
    scenarios::run(&mut cluster)?;
    tutorial::run(folder)?;
    cluster.finish()
}
