//! Lookup and description of machines.

use std::path::PathBuf;

use api::{Machine, Problem, ProblemKind, Snapshot, Volume};

use super::{Service, daemon_problem, libvirt_problem};
use crate::description::Description;
use crate::libvirt::{Connection, Domain};

impl Service {
    pub(crate) fn machine(&self, name: &str) -> Result<Machine, Problem> {
        let (mut libvirt, domain) = self.found(name)?;
        self.shown(&mut libvirt, &domain)
    }

    pub(super) fn console_log(&self, name: &str) -> PathBuf {
        self.console_folder.join(format!("{name}-console.log"))
    }

    pub(super) fn libvirt(&self) -> Result<Connection, Problem> {
        Connection::open(&self.libvirt_socket)
            .map_err(|error| Problem::new(ProblemKind::HostFailed, error.to_string()))
    }

    pub(super) fn found(&self, name: &str) -> Result<(Connection, Domain), Problem> {
        let mut libvirt = self.libvirt()?;
        let domain = libvirt.domain(name).map_err(libvirt_problem(name))?;
        Ok((libvirt, domain))
    }

    pub(super) fn all_shown(&self, libvirt: &mut Connection) -> Result<Vec<Machine>, Problem> {
        let domains = libvirt.domains().map_err(libvirt_problem("*"))?;
        let mut machines = Vec::new();
        for domain in domains {
            match self.shown(libvirt, &domain) {
                // The machine was deleted concurrently.
                Err(problem) if problem.kind == ProblemKind::NotFound => {}
                machine => machines.push(machine?),
            }
        }
        Ok(machines)
    }

    /// Returns the current description of a machine.
    pub(super) fn shown(
        &self,
        libvirt: &mut Connection,
        domain: &Domain,
    ) -> Result<Machine, Problem> {
        let info = libvirt.info(domain).map_err(libvirt_problem(&domain.name))?;
        let description = self.described(libvirt, domain)?;
        Ok(Machine {
            name: domain.name.clone(),
            state: info.state,
            cpus: info.cpus,
            memory_bytes: info.memory_bytes,
            is_own: description.is_own,
            is_emulated: description.is_emulated,
            volumes: description.volumes(),
            disks: description.disks,
            has_serial_console: description.has_serial,
            has_graphical_console: description.has_screen,
        })
    }

    pub(super) fn described(
        &self,
        libvirt: &mut Connection,
        domain: &Domain,
    ) -> Result<Description, Problem> {
        let xml = libvirt.xml(domain).map_err(libvirt_problem(&domain.name))?;
        self.parsed(domain, &xml)
    }

    pub(super) fn parsed(&self, domain: &Domain, xml: &str) -> Result<Description, Problem> {
        let mut description = Description::read(xml, &self.sockets).map_err(|error| {
            let detail = format!("machine {:?}: {error}", domain.name);
            Problem::new(ProblemKind::HostFailed, detail)
        })?;
        description.name_volumes(|id| self.name_of_volume(id))?;
        Ok(description)
    }

    /// Returns the name of the volume or snapshot with this id, if it exists.
    fn name_of_volume(&self, id: u64) -> Result<Option<String>, Problem> {
        let snapshots: Vec<Snapshot> =
            self.daemon.get(api::SNAPSHOTS_PATH).map_err(daemon_problem)?;
        if let Some(snapshot) = snapshots.into_iter().find(|it| it.id == id) {
            return Ok(Some(snapshot.name));
        }
        let volumes: Vec<Volume> = self.daemon.get(api::VOLUMES_PATH).map_err(daemon_problem)?;
        Ok(volumes.into_iter().find(|it| it.id == id).map(|it| it.name))
    }
}
