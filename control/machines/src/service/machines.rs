//! Existing machines: list, start, stop, delete.

use api::{DiskKind, Export, Machine, Problem, ProblemKind};

use super::disks::socket_of;
use super::{Service, daemon_problem, libvirt_problem, unless_gone};

/// Handling of the disks of a deleted machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Volumes {
    Keep,
    Delete,
}

impl Service {
    /// Lists all machines of this host, sorted by name.
    pub(crate) fn machines(&self) -> Result<Vec<Machine>, Problem> {
        let mut machines = self.all_shown(&mut self.libvirt()?)?;
        machines.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(machines)
    }

    pub(crate) fn start(&self, name: &str) -> Result<Machine, Problem> {
        let (mut libvirt, domain) = self.found(name)?;
        // Without the daemon, QEMU would wait for the socket, and libvirt for QEMU.
        for disk in self.shown(&mut libvirt, &domain)?.disks {
            if let (DiskKind::VhostUser, Some(volume)) = (disk.kind, disk.volume) {
                let path = api::path_of(api::EXPORT_PATH, &volume);
                let export: Export = self.daemon.get(&path).map_err(daemon_problem)?;
                socket_of(&export)?;
            }
        }
        libvirt.start(&domain).map_err(libvirt_problem(name))?;
        self.shown(&mut libvirt, &domain)
    }

    /// Asks the guest to shut down. The guest may ignore the request.
    pub(crate) fn shut_down(&self, name: &str) -> Result<Machine, Problem> {
        let (mut libvirt, domain) = self.found(name)?;
        libvirt.shut_down(&domain).map_err(libvirt_problem(name))?;
        self.shown(&mut libvirt, &domain)
    }

    /// Powers a machine off.
    pub(crate) fn kill(&self, name: &str) -> Result<Machine, Problem> {
        let (mut libvirt, domain) = self.found(name)?;
        libvirt.kill(&domain).map_err(libvirt_problem(name))?;
        self.shown(&mut libvirt, &domain)
    }

    /// Deletes a stopped machine that this program created, its exports, and optionally its
    /// volumes.
    pub(crate) fn delete(&self, name: &str, volumes: Volumes) -> Result<(), Problem> {
        let (mut libvirt, domain) = self.found(name)?;
        let machine = self.shown(&mut libvirt, &domain)?;
        if !machine.is_own {
            let detail = format!(
                "machine {name:?} is not managed by memlane-machines; delete it with virsh \
                 undefine"
            );
            return Err(Problem::new(ProblemKind::NotSupported, detail));
        }
        if !matches!(machine.state, api::MachineState::Off | api::MachineState::Crashed) {
            let detail = format!("machine {name:?} is running; stop or kill it first");
            return Err(Problem::new(ProblemKind::InUse, detail));
        }
        // The machine is deleted last, so that a failed deletion can be repeated.
        for disk in &machine.disks {
            let Some(volume) = &disk.volume else { continue };
            self.release_disk(volume, disk.kind)?;
            // Snapshots do not belong to the machine.
            if volumes == Volumes::Delete && !volume.contains('@') {
                unless_gone(self.delete_volume(volume))?;
            }
        }
        libvirt.undefine(&domain).map_err(libvirt_problem(name))?;
        if let Err(error) = std::fs::remove_file(self.console_log(name)) {
            // A machine that never ran has no log.
            tracing::debug!(%error, name, "cannot remove the console log");
        }
        Ok(())
    }
}
