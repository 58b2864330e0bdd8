//! Consistent snapshots of all volumes of a machine.
//!
//! Frozen file systems of the guest are thawed whether or not the snapshot succeeds. If this
//! program is killed in between, they stay frozen until `virsh domfsthaw`.

use api::{
    MachineSnapshot, MachineSnapshotCreate, MachineState, Method, Problem, ProblemKind, Snapshot,
    SnapshotCreate,
};

use super::{Service, daemon_problem, libvirt_problem};

impl Service {
    pub(crate) fn snapshot(
        &self,
        name: &str,
        request: &MachineSnapshotCreate,
    ) -> Result<MachineSnapshot, Problem> {
        let (mut libvirt, domain) = self.found(name)?;
        let machine = self.shown(&mut libvirt, &domain)?;
        let mut volumes = machine.volumes;
        // Disks that are snapshots themselves are skipped, because they cannot change.
        volumes.retain(|volume| !volume.contains('@'));
        if volumes.is_empty() {
            let detail = format!("machine {name:?} has no disk on a volume");
            return Err(Problem::new(ProblemKind::NotSupported, detail));
        }
        let mut warnings = Vec::new();
        let mut is_frozen = false;
        if machine.state != MachineState::Off {
            match libvirt.freeze(&domain) {
                Ok(()) => is_frozen = true,
                Err(error) if request.needs_freeze => {
                    let detail = format!(
                        "cannot freeze the file systems of machine {name:?} (qemu-guest-agent): \
                         {error}"
                    );
                    return Err(Problem::new(ProblemKind::NotSupported, detail));
                }
                Err(error) => warnings.push(format!(
                    "the snapshot is only crash-consistent: cannot freeze the guest's file \
                     systems (qemu-guest-agent): {error}"
                )),
            }
        }
        let request = SnapshotCreate { volumes, snapshot: request.snapshot.clone() };
        let taken: Result<Vec<Snapshot>, _> =
            self.daemon.ask(Method::Post, api::SNAPSHOTS_PATH, &request);
        if is_frozen {
            let thawed = libvirt.thaw(&domain).map_err(libvirt_problem(name));
            if let Err(problem) = thawed {
                tracing::error!(%problem, name, "cannot thaw the file systems of a guest");
                warnings.push(format!(
                    "the guest's file systems are still frozen ({problem}); run virsh domfsthaw"
                ));
            }
        }
        let snapshots = taken.map_err(daemon_problem)?;
        let snapshots = snapshots.into_iter().map(|snapshot| snapshot.name).collect();
        Ok(MachineSnapshot { snapshots, is_frozen, warnings })
    }
}
