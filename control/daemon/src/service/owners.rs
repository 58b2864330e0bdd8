//! Owners and labels of volumes: set, and asked before something is done to what belongs to
//! somebody.

use api::{Problem, ProblemKind};
use volumes::Volume;

use crate::service::Service;
use crate::volume_labels::Labelled;

/// What becomes of a request that its volume's owner does not know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// It is refused.
    Respected,
    Overruled,
}

impl Ownership {
    pub(crate) fn of_force(force: bool) -> Self {
        if force { Self::Overruled } else { Self::Respected }
    }
}

impl Service {
    /// Refuses what takes contents or their name away from the owner of a volume.
    pub(super) fn check_owner(
        &self,
        volume: &Volume,
        action: &str,
        ownership: Ownership,
    ) -> Result<(), Problem> {
        let owner = self.labels.of(volume.id()).owner;
        if owner.is_empty() || ownership == Ownership::Overruled {
            return Ok(());
        }
        let detail = format!(
            "the volume {:?} cannot be {action}: it belongs to {owner}, which would not know; have \
             it done there, or do it all the same (force, --force)",
            volume.name()
        );
        Err(Problem::new(ProblemKind::InUse, detail))
    }

    /// What a volume is to have, if that can be.
    pub(super) fn check_labels(labelled: &Labelled) -> Result<(), Problem> {
        match labelled.refusal() {
            Some((field, why)) => Err(Problem::new(ProblemKind::InvalidField, why).in_field(field)),
            None => Ok(()),
        }
    }

    pub(super) fn set_labels(&self, volume: &Volume, labelled: Labelled) -> Result<(), Problem> {
        let name = &volume.name();
        self.labels.set(labelled).map_err(|error| {
            let detail = format!("cannot store the owner and labels of {name:?}: {error}");
            Problem::new(ProblemKind::HostFailed, detail)
        })
    }
}
