//! Changes of a volume. A request is applied completely or not at all.

use api::{Problem, ProblemKind, VolumePatch};
use block_device::BlockDevice;
use volumes::{
    CapacityClass, Durability, Reduction, ShrinkPolicy, Volume, VolumeError, VolumeErrorKind,
    VolumeMirror, VolumeName,
};

use crate::broker_lock::NoBroker;
use crate::service::volumes::{Made, parse_name};
use crate::service::words::InterfaceWord;
use crate::service::{Ownership, Precondition, Service, refusals};
use crate::volume_labels::Labelled;
use crate::volume_users;

/// Requested changes, in types of the engine. All checks have passed.
#[derive(Debug, Default)]
struct Plan {
    reduction: Option<Reduction>,
    durability: Option<Durability>,
    capacity: Option<CapacityClass>,
    mirror: Option<VolumeMirror>,
    users: Option<Vec<String>>,
    labelled: Labelled,
    size: Option<(u64, ShrinkPolicy)>,
    name: Option<VolumeName>,
    /// Excludes the broker while contents that belong to it are dropped.
    _away: Option<NoBroker>,
}

/// State to which a failed change is rolled back. The size is not included, because it is changed
/// last.
struct Before {
    reduction: Reduction,
    durability: Durability,
    capacity: CapacityClass,
    mirror: VolumeMirror,
    users: Vec<String>,
    labelled: Labelled,
    name: VolumeName,
}

impl Service {
    /// Changes a volume, completely or not at all.
    pub(crate) fn change_volume(
        &self,
        name: &str,
        request: &VolumePatch,
        condition: &Precondition,
    ) -> Result<api::Volume, Problem> {
        self.durable()?;
        self.await_closing(&*self.volume(name)?);
        if request.name.is_some() {
            // They are renamed with it.
            let snapshots = self.engine.snapshots_of(&*self.volume(name)?);
            snapshots.iter().for_each(|snapshot| self.await_closing(snapshot));
        }
        let (volume, changed) = {
            let new_name = request.name.as_deref();
            let _locked = self.changes.lock([name].into_iter().chain(new_name));
            let volume = self.volume(name)?;
            condition.check(|| self.describe(&volume))?;
            let plan = self.plan(&volume, request)?;
            let changed = self.carry_out(&volume, &plan);
            (volume, changed)
        };
        self.usages.forget(volume.id());
        changed?;
        Ok(self.describe(&volume))
    }

    /// Checks everything that can be checked before the change.
    fn plan(&self, volume: &Volume, request: &VolumePatch) -> Result<Plan, Problem> {
        if volume.is_snapshot() {
            let never = VolumeError::new(VolumeErrorKind::IsSnapshot, volume.name());
            return Err(refusals::of_volume(&never));
        }
        if request.force && request.size.is_none() && request.name.is_none() {
            let detail = "force is only valid with a new size or name";
            return Err(Problem::new(ProblemKind::InvalidField, detail).in_field("force"));
        }
        if let Some(refusal) = request.users.as_deref().and_then(volume_users::refusal) {
            return Err(Problem::new(ProblemKind::InvalidField, refusal).in_field("users"));
        }
        let name = request.name.as_deref().map(parse_name).transpose()?;
        let name = name.filter(|new_name| new_name.as_str() != volume.name());
        if let Some(new_name) = &name {
            self.check_renamable(volume, new_name)?;
            self.check_owner(volume, "renamed", Ownership::of_force(request.force))?;
        }
        let mut away = None;
        if let Some(size) = request.size {
            self.check_resizable(volume)?;
            if size.0 < volume.geometry().size_bytes {
                let ownership = Ownership::of_force(request.force);
                away = self.keep_owner_away(volume, "shrunk", ownership)?;
            }
        }
        let labelled = self.labels.of(volume.id());
        let labelled = labelled.changed(request.owner.as_deref(), &request.labels);
        Self::check_labels(&labelled)?;
        if let Some(class) = request.durability {
            self.prepare_class(volume, class);
        }
        let shrink = if request.force { ShrinkPolicy::DropData } else { ShrinkPolicy::KeepData };
        Ok(Plan {
            reduction: request.reduction.map(InterfaceWord::to_engine),
            durability: request.durability.map(InterfaceWord::to_engine),
            capacity: request.capacity.map(InterfaceWord::to_engine),
            mirror: request.mirror.map(InterfaceWord::to_engine),
            users: request.users.clone(),
            labelled,
            size: request.size.map(|size| (size.0, shrink)),
            name,
            _away: away,
        })
    }

    /// Makes the changes, and rolls back if one fails.
    fn carry_out(&self, volume: &Volume, plan: &Plan) -> Result<(), Problem> {
        let before = Before {
            reduction: volume.reduction(),
            durability: volume.durability(),
            capacity: volume.capacity_class(),
            mirror: volume.mirror(),
            users: self.users.of(volume.id()),
            labelled: self.labels.of(volume.id()),
            name: parse_name(&volume.name())?,
        };
        // A change that was made but not recorded on stable storage stays. The next change or flush
        // records it.
        match self.make(volume, plan) {
            Ok(noted) => noted,
            Err(problem) => {
                self.take_back(volume, before);
                Err(problem)
            }
        }
    }

    fn make(&self, volume: &Volume, plan: &Plan) -> Made {
        let mut noted = Ok(());
        if let Some(class) = plan.capacity {
            noted = noted.and(self.set_capacity(volume, class)?);
        }
        if let Some(class) = plan.durability {
            noted = noted.and(self.set_durability(volume, class)?);
        }
        if let Some(mirror) = plan.mirror {
            noted = noted.and(self.set_mirror(volume, mirror)?);
        }
        if let Some(users) = &plan.users {
            self.set_users(volume, users.clone())?;
        }
        self.set_labels(volume, plan.labelled.clone())?;
        if let Some(reduction) = plan.reduction {
            noted = noted.and(self.set_reduction(volume, reduction)?);
        }
        if let Some(new_name) = &plan.name {
            noted = noted.and(self.rename(volume, new_name.clone())?);
        }
        // Last, because data dropped by a shrink cannot be restored.
        if let Some((bytes, shrink)) = plan.size {
            noted = noted.and(self.resize(volume, bytes, shrink)?);
        }
        Ok(noted)
    }

    /// Rolls back to the former state. Failures are reported, and the remaining changes are rolled
    /// back anyway.
    fn take_back(&self, volume: &Volume, before: Before) {
        let mut taken = Vec::new();
        if volume.name() != before.name.as_str() {
            taken.push(self.rename(volume, before.name).flatten());
        }
        if volume.reduction() != before.reduction {
            taken.push(self.set_reduction(volume, before.reduction).flatten());
        }
        if self.users.of(volume.id()) != before.users {
            taken.push(self.set_users(volume, before.users));
        }
        taken.push(self.set_labels(volume, before.labelled));
        if volume.mirror() != before.mirror {
            taken.push(self.set_mirror(volume, before.mirror).flatten());
        }
        if volume.durability() != before.durability {
            taken.push(self.set_durability(volume, before.durability).flatten());
        }
        if volume.capacity_class() != before.capacity {
            taken.push(self.set_capacity(volume, before.capacity).flatten());
        }
        for problem in taken.into_iter().filter_map(Result::err) {
            tracing::error!(volume = volume.name(), %problem, "cannot undo a failed change");
        }
    }

    fn set_reduction(&self, volume: &Volume, reduction: Reduction) -> Made {
        let name = &volume.name();
        let noted = self.made(self.durable()?.set().set_reduction(name, reduction))?;
        tracing::info!(volume = name, ?reduction, "reduction changed");
        Ok(noted)
    }

    fn set_durability(&self, volume: &Volume, class: Durability) -> Made {
        let (name, before) = (&volume.name(), volume.durability());
        let noted = self.made(self.durable()?.set().set_durability(name, class))?;
        self.tell_write_cache(volume, before)?;
        tracing::info!(volume = name, ?class, "durability changed");
        Ok(noted)
    }

    fn set_capacity(&self, volume: &Volume, class: CapacityClass) -> Made {
        let name = &volume.name();
        let changed = self.durable()?.set().set_capacity(name, class);
        let noted = self.made(changed).map_err(|problem| problem.in_field("capacity"))?;
        tracing::info!(volume = name, ?class, "capacity changed");
        Ok(noted)
    }

    fn set_mirror(&self, volume: &Volume, mirror: VolumeMirror) -> Made {
        let name = &volume.name();
        let noted = self.made(self.durable()?.set().set_mirror(name, mirror))?;
        tracing::info!(volume = name, %mirror, "mirroring of flushes changed");
        Ok(noted)
    }

    fn set_users(&self, volume: &Volume, users: Vec<String>) -> Result<(), Problem> {
        let name = &volume.name();
        self.users.set(volume.id(), users.clone()).map_err(|error| {
            let detail = format!("cannot store the users of volume {name:?}: {error}");
            Problem::new(ProblemKind::HostFailed, detail)
        })?;
        tracing::info!(volume = name, ?users, "users changed");
        Ok(())
    }
}
