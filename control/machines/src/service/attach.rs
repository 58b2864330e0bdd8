//! Attaching and detaching disks, also while the machine is running.

use std::thread;
use std::time::{Duration, Instant};

use api::{DiskAttach, DiskDetach, Machine, MachineState, Problem, ProblemKind};

use super::{Service, checks, libvirt_problem};
use crate::description::Description;
use crate::libvirt::{Connection, Domain, Side};
use crate::template::{Disk, targets};

/// Time limit for the guest to release a disk.
const DETACH_TIME_MAX: Duration = Duration::from_secs(30);
const DETACH_PAUSE: Duration = Duration::from_millis(50);

impl Service {
    pub(crate) fn attach(&self, name: &str, request: &DiskAttach) -> Result<Machine, Problem> {
        let DiskAttach { volume, protocol } = request;
        checks::check_attached(volume, *protocol)?;
        let (mut libvirt, domain) = self.found(name)?;
        let machine = self.shown_own(&mut libvirt, &domain)?;
        self.check_unused(&mut libvirt, volume)?;
        let is_free = |target: &String| machine.disks.iter().all(|disk| disk.target != *target);
        let target = targets().find(is_free).ok_or_else(|| {
            Problem::new(
                ProblemKind::NotSupported,
                format!("machine {name:?} has no free disk name (vda to vdz)"),
            )
        })?;
        let sides = match has_power(machine.state) {
            true => &[Side::Live, Side::Config][..],
            false => &[Side::Config],
        };
        let mut done = Vec::new();
        let attached = self.ready_disk(volume, *protocol, machine.cpus, &mut done);
        let attached = attached.and_then(|disk| {
            let device = disk.xml(&target);
            libvirt.attach(&domain, &device, sides).map_err(libvirt_problem(name))
        });
        if let Err(problem) = attached {
            self.undo(&mut libvirt, done);
            return Err(problem);
        }
        self.shown(&mut libvirt, &domain)
    }

    /// Detaches a disk. If the guest does not release it in time, the request fails and can be
    /// repeated.
    pub(crate) fn detach(&self, name: &str, request: &DiskDetach) -> Result<Machine, Problem> {
        let volume = &request.volume;
        let (mut libvirt, domain) = self.found(name)?;
        let machine = self.shown_own(&mut libvirt, &domain)?;
        let is_it = |disk: &&api::MachineDisk| disk.volume.as_ref() == Some(volume);
        let live = machine.disks.iter().find(is_it).filter(|_| has_power(machine.state)).cloned();
        let xml = libvirt.config_xml(&domain).map_err(libvirt_problem(name))?;
        let config = self.parsed(&domain, &xml)?.disks.into_iter().find(|disk| is_it(&disk));
        let Some(disk) = live.as_ref().or(config.as_ref()) else {
            let detail = format!("volume {volume:?} is not a disk of machine {name:?}");
            return Err(Problem::new(ProblemKind::NotFound, detail).in_field("volume"));
        };
        let kind = disk.kind;
        // libvirt identifies the disk by its target name alone.
        let device = Disk::VhostUser { socket: String::new(), queues: 1 }.xml(&disk.target);
        if config.is_some() {
            let detached = libvirt.detach(&domain, &device, Side::Config);
            detached.map_err(libvirt_problem(name))?;
        }
        if live.is_some() {
            let detached = libvirt.detach(&domain, &device, Side::Live);
            detached.map_err(libvirt_problem(name))?;
            self.wait_until_gone(&mut libvirt, &domain, volume)?;
        }
        self.release_disk(volume, kind)?;
        self.shown(&mut libvirt, &domain)
    }

    fn wait_until_gone(
        &self,
        libvirt: &mut Connection,
        domain: &Domain,
        volume: &str,
    ) -> Result<(), Problem> {
        let deadline = Instant::now() + DETACH_TIME_MAX;
        while self.described(libvirt, domain)?.has_volume(volume) {
            if Instant::now() >= deadline {
                let detail = format!(
                    "the guest of machine {:?} did not release disk {volume:?} within {} s; \
                     unmount it in the guest and retry",
                    domain.name,
                    DETACH_TIME_MAX.as_secs()
                );
                return Err(Problem::new(ProblemKind::Busy, detail));
            }
            thread::sleep(DETACH_PAUSE);
        }
        Ok(())
    }

    /// Returns the machine. Fails if it is not managed by this program.
    fn shown_own(&self, libvirt: &mut Connection, domain: &Domain) -> Result<Machine, Problem> {
        let machine = self.shown(libvirt, domain)?;
        match machine.is_own {
            true => Ok(machine),
            false => {
                let detail = format!(
                    "machine {:?} is not managed by memlane-machines; change its disks with \
                         virsh",
                    domain.name
                );
                Err(Problem::new(ProblemKind::NotSupported, detail))
            }
        }
    }
}

pub(super) fn has_power(state: MachineState) -> bool {
    match state {
        MachineState::Running | MachineState::Paused | MachineState::ShuttingDown => true,
        MachineState::Off | MachineState::Crashed | MachineState::Unknown => false,
    }
}

impl Description {
    fn has_volume(&self, volume: &str) -> bool {
        self.disks.iter().any(|disk| disk.volume.as_deref() == Some(volume))
    }
}
