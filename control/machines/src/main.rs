//! `memlane-machines`: virtual machines of libvirt whose disks are volumes.
//!
//! ```text
//! memlane vm ─▶ http ─▶ service ─┬─▶ template: the XML of a machine
//!                                ├─▶ description: what libvirt's XML says of machines
//!                                ├─▶ libvirt: its socket, the right of which is root's in effect
//!                                ├─▶ seed: a disk for cloud-init
//!                                └─▶ rest-client: clones and exports of the daemon
//! ```
//!
//! It alone speaks to libvirt, and tells it only what the template makes: who may ask it gets
//! machines on volumes, not files of the host. It holds no state; machines say themselves what they
//! were made with.
#![forbid(unsafe_code)]

mod description;
mod http;
mod libvirt;
mod options;
mod seed;
mod service;
mod template;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use rest_client::{Address, Client};

use crate::description::Sockets;
use crate::http::Access;
use crate::options::Options;
use crate::service::Service;

/// Operations that are under way at once; others wait for a thread.
const BLOCKING_THREAD_COUNT_MAX: usize = 8;

const GROUPS_PATH: &str = "/etc/group";

fn main() -> ExitCode {
    program::run(|options: Options| match &options.man {
        Some(folder) => program::write_manual::<Options>(folder),
        None => start(options),
    })
}

fn start(options: Options) -> anyhow::Result<()> {
    program::start_log(&options.log)?;
    let gid = options.group.as_deref().map(gid_of).transpose()?;
    let daemon_folder = options.daemon_socket.parent().unwrap_or(Path::new("/"));
    let sockets = Sockets {
        vhost_folder: daemon_folder.join("vhost"),
        nbd: daemon_folder.join("nbd.sock"),
        ring: daemon_folder.join("ring.sock"),
    };
    let service = Service {
        sockets,
        libvirt_socket: options.libvirt_socket,
        daemon: Client { address: Address::Socket(options.daemon_socket) },
        boot_folder: options.boot_dir,
        console_folder: options.console_dir,
        machine_user: options.machine_user,
    };
    let running = http::run(&options.socket, Access { gid }, service);
    program::block_on(BLOCKING_THREAD_COUNT_MAX, running)
}

/// The number of a group that is given by name or number.
fn gid_of(group: &str) -> anyhow::Result<u32> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string(GROUPS_PATH)
        .with_context(|| format!("cannot read {GROUPS_PATH}"))?;
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let line = groups.lines().map(fields).find(|fields| fields[0] == group);
    line.and_then(|fields| fields.get(2)?.parse().ok()).with_context(|| {
        format!("no group {group:?} on this host; create it with groupadd --system {group}")
    })
}
