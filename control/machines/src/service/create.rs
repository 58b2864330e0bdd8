//! Machine creation: all requested machines or none. If a step fails, the earlier ones are undone.

use std::path::PathBuf;

use api::{MachineCreate, MachinesCreated, Problem, ProblemKind};

use super::checks::{self, DiskSource, SEED_SUFFIX};
use super::disks::Done;
use super::{Service, libvirt_problem};
use crate::libvirt::Connection;
use crate::template::{Accelerator, Boot, Disk, Plan};

const NO_KVM: &str =
    "KVM is not available (/dev/kvm): machines are emulated and several times slower";

/// Properties that all machines of a request share.
struct Alike<'a> {
    request: &'a MachineCreate,
    disk: DiskSource<'a>,
    accelerator: Accelerator,
    boot: Option<Boot>,
    cdrom: Option<PathBuf>,
}

impl Service {
    pub(crate) fn create(&self, request: &MachineCreate) -> Result<MachinesCreated, Problem> {
        let names = checks::names(request)?;
        checks::check_sizes(request)?;
        checks::check_networks(request)?;
        checks::check_seed(request, &names)?;
        let boot = checks::boot(&self.boot_folder, request)?;
        let cdrom = checks::cdrom(&self.boot_folder, request)?;
        let disk = checks::disk(request)?;
        let mut libvirt = self.libvirt()?;
        for name in &names {
            match libvirt.domain(name) {
                Err(error) if error.is_no_domain() => {}
                Err(error) => return Err(libvirt_problem(name)(error)),
                Ok(_) => {
                    let detail = format!("machine {name:?} already exists");
                    return Err(Problem::new(ProblemKind::AlreadyExists, detail).in_field("name"));
                }
            }
        }
        if let DiskSource::Volume(volume) = disk {
            self.check_unused(&mut libvirt, volume)?;
        }
        let has_kvm = libvirt.can_run("kvm").map_err(libvirt_problem(&request.name))?;
        let accelerator = if has_kvm { Accelerator::Kvm } else { Accelerator::Emulated };
        let alike = Alike { request, disk, accelerator, boot, cdrom };
        let mut done = Vec::new();
        for name in &names {
            if let Err(problem) = self.create_one(&mut libvirt, &alike, name, &mut done) {
                self.undo(&mut libvirt, done);
                return Err(problem);
            }
        }
        let machines = names.iter().map(|name| self.machine(name)).collect::<Result<_, _>>()?;
        let warnings = if has_kvm { Vec::new() } else { vec![NO_KVM.to_owned()] };
        Ok(MachinesCreated { machines, warnings })
    }

    fn create_one(
        &self,
        libvirt: &mut Connection,
        alike: &Alike<'_>,
        name: &str,
        done: &mut Vec<Done>,
    ) -> Result<(), Problem> {
        let request = alike.request;
        let plan = Plan {
            name: name.to_owned(),
            accelerator: alike.accelerator,
            cpus: request.cpus,
            memory_bytes: request.memory.0,
            boot: alike.boot.clone(),
            disks: self.make_disks(alike, name, done)?,
            cdrom: alike.cdrom.clone(),
            networks: request.networks.clone(),
            has_screen: request.graphics,
            console_log: self.console_log(name),
        };
        let domain = libvirt.define(&plan.xml()).map_err(libvirt_problem(name))?;
        done.push(Done::Defined(domain.clone()));
        if request.start {
            libvirt.start(&domain).map_err(libvirt_problem(name))?;
            done.push(Done::Started(domain));
        }
        Ok(())
    }

    fn make_disks(
        &self,
        alike: &Alike<'_>,
        name: &str,
        done: &mut Vec<Done>,
    ) -> Result<Vec<Disk>, Problem> {
        let request = alike.request;
        let volume = match alike.disk {
            DiskSource::Volume(volume) => volume,
            DiskSource::CloneOf(source) => {
                self.clone_volume(source, name)?;
                done.push(Done::Made(name.to_owned()));
                name
            }
            DiskSource::Empty(size) => {
                self.create_volume(name, size)?;
                done.push(Done::Made(name.to_owned()));
                name
            }
        };
        let mut disks = vec![self.ready_disk(volume, request.protocol, request.cpus, done)?];
        if let Some(user_data) = &request.user_data {
            let seed = format!("{name}{SEED_SUFFIX}");
            self.create_seed(&seed, volume)?;
            done.push(Done::Made(seed.clone()));
            self.fill_seed(&seed, name, user_data, request.network_config.as_deref())?;
            disks.push(self.ready_disk(&seed, request.protocol, 1, done)?);
        }
        Ok(disks)
    }
}
