//! `memlane-machines`: libvirt virtual machines whose disks are volumes.
//!
//! ```text
//! memlane vm ─▶ http ─▶ service ─┬─▶ template: domain XML of a new machine
//!                                ├─▶ description: parser of libvirt's domain XML
//!                                ├─▶ libvirt: its socket, access to which amounts to root access
//!                                ├─▶ seed: seed disk for cloud-init
//!                                └─▶ rest-client: clones and exports of the daemon
//! ```
//!
//! Only this program speaks to libvirt, and only with XML from the template. Its clients can
//! therefore create machines on volumes, but not access files of the host. It keeps no state: the
//! configuration of a machine is in its domain XML.
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

/// Maximum number of concurrent operations. Others wait for a thread.
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

/// Returns the gid of a group given by name or number.
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
