//! Owners and labels of volumes, and checks of ownership before an operation.

use api::{Problem, ProblemKind};
use volumes::Volume;

use crate::broker_lock::NoBroker;
use crate::service::Service;
use crate::volume_labels::Labelled;

/// Treatment of a request that is not from the volume's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The request is refused.
    Respected,
    Overruled,
}

impl Ownership {
    pub(crate) fn of_force(force: bool) -> Self {
        if force { Self::Overruled } else { Self::Respected }
    }
}

impl Service {
    /// Refuses operations that take contents or their name away from a volume's owner.
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
            "volume {:?} cannot be {action}: its owner is {owner}, which should make this \
             change; to make it all the same, use force (--force)",
            volume.name()
        );
        Err(Problem::new(ProblemKind::InUse, detail))
    }

    /// Excludes the owner of a volume during an in-place change of its contents. Fails, even for
    /// the owner, while the owner is known to run, as a broker is: it may have the volume open and
    /// reconnect after a restart of this daemon. The owner cannot start while the returned value
    /// exists.
    pub(super) fn keep_owner_away(
        &self,
        volume: &Volume,
        action: &str,
        ownership: Ownership,
    ) -> Result<Option<NoBroker>, Problem> {
        self.check_owner(volume, action, ownership)?;
        if self.labels.of(volume.id()).owner != api::BROKER_OWNER {
            return Ok(None);
        }
        let cannot = || format!("volume {:?} cannot be {action}", volume.name());
        match self.broker_lock.take() {
            Ok(Some(away)) => Ok(Some(away)),
            Ok(None) => {
                let why =
                    "it is managed by memlane-broker, which is running; stop the broker first";
                Err(Problem::new(ProblemKind::InUse, format!("{}: {why}", cannot())))
            }
            Err(error) => {
                let why = format!("cannot tell whether memlane-broker is running: {error}");
                Err(Problem::new(ProblemKind::HostFailed, format!("{}: {why}", cannot())))
            }
        }
    }

    /// Validates labels.
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
