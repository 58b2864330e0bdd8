//! Operations on machines. Each one uses its own connection to libvirt, and requests to the daemon.
//! Nothing is cached, so changes by other tools are seen.

mod attach;
mod checks;
mod cloud_init;
mod consoles;
mod create;
mod disks;
mod found;
mod machines;
mod snapshot;

pub(crate) use machines::Volumes;

use std::path::PathBuf;

use api::{Problem, ProblemKind};
use rest_client::{Client, RestError};

use crate::description::Sockets;
use crate::libvirt::LibvirtError;

/// Paths and addresses that operations use.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) libvirt_socket: PathBuf,
    pub(crate) daemon: Client,
    pub(crate) sockets: Sockets,
    /// Folder of kernels and initial RAM disks that machines may boot.
    pub(crate) boot_folder: PathBuf,
    pub(crate) console_folder: PathBuf,
    /// User as which QEMU runs, who must have access to the disks' sockets.
    pub(crate) machine_user: String,
}

fn daemon_problem(error: RestError) -> Problem {
    match error {
        RestError::Refused(problem) => problem,
        other => Problem::new(ProblemKind::HostFailed, other.to_string()),
    }
}

/// Ignores the error that an object to delete does not exist.
fn unless_gone(result: Result<(), Problem>) -> Result<(), Problem> {
    match result {
        Err(problem) if problem.kind == ProblemKind::NotFound => Ok(()),
        result => result,
    }
}

fn libvirt_problem(name: &str) -> impl Fn(LibvirtError) -> Problem {
    move |error| {
        let kind = match &error {
            it if it.is_no_domain() => ProblemKind::NotFound,
            it if it.is_wrong_state() => ProblemKind::Busy,
            _ => ProblemKind::HostFailed,
        };
        Problem::new(kind, format!("machine {name:?}: {error}"))
    }
}
