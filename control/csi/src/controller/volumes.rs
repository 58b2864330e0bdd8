//! Existing volumes: list, validate, expand and delete.

use api::Volume;
use tonic::Status;

use super::pages::page;
use crate::capability::{capabilities, refusal};
use crate::class::Class;
use crate::daemon::is_of_driver;
use crate::driver::Driver;
use crate::names::{is_unfinished, unfinished_name};
use crate::options::Growth;
use crate::wire::{
    Capabilities, Confirmed, ExpandAnswer, ExpandRequest, HealthAnswer, ListVolumesAnswer,
    ListVolumesRequest, Nothing, ValidateAnswer, ValidateRequest, VolumeAnswer, VolumeId,
    controller,
};

impl Driver {
    pub(crate) fn controller_capabilities(&self, _: Nothing) -> Result<Capabilities, Status> {
        let mut kinds = vec![
            controller::CREATE_DELETE_VOLUME,
            controller::LIST_VOLUMES,
            controller::GET_CAPACITY,
            controller::CREATE_DELETE_SNAPSHOT,
            controller::LIST_SNAPSHOTS,
            controller::CLONE_VOLUME,
            controller::GET_VOLUME,
            controller::SINGLE_NODE_MULTI_WRITER,
            controller::GET_SNAPSHOT,
            controller::GET_VOLUME_HEALTH,
        ];
        if self.growth == Growth::Controller {
            kinds.push(controller::EXPAND_VOLUME);
        }
        Ok(capabilities(&kinds))
    }

    /// Deletes an unused volume without snapshots. Succeeds if it does not exist.
    pub(crate) fn delete_volume(&self, request: VolumeId) -> Result<Nothing, Status> {
        let name = request.volume_id;
        if name.is_empty() {
            return Err(Status::invalid_argument("the request has no volume id"));
        }
        let _guard = self.busy.begin(&name)?;
        self.delete_unfinished(&unfinished_name(&name))?;
        let Some(volume) = self.daemon.volume(&name)? else { return Ok(Nothing {}) };
        if !is_of_driver(&volume) {
            return Err(Status::failed_precondition(format!(
                "cannot delete volume {name:?}: it was not created by this driver; set the \
                 reclaim policy of its PersistentVolume to Retain"
            )));
        }
        let snapshots = self.daemon.snapshots()?;
        let mut snapshots = snapshots.iter().filter(|it| it.volume == name).map(|it| &it.name);
        if let Some(snapshot) = snapshots.next() {
            return Err(Status::failed_precondition(format!(
                "cannot delete volume {name:?}: it has snapshots ({snapshot:?} and {}); delete \
                 their VolumeSnapshots first",
                api::counted(snapshots.count() as u64, "other")
            )));
        }
        // Staged by a kubelet that no longer exists. The daemon rejects this while the device is
        // mounted.
        if volume.device.is_some() {
            self.daemon.detach(&name)?;
        }
        self.give_up(&volume)?;
        Ok(Nothing {})
    }

    pub(crate) fn validate(&self, request: ValidateRequest) -> Result<ValidateAnswer, Status> {
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("the request has no volume capability"));
        }
        let volume = self.daemon.known_volume(&request.volume_id)?;
        let class = Class::of(&request.parameters);
        let other = match &class {
            Ok(class) if !request.parameters.is_empty() => class.difference(&volume),
            _ => None,
        };
        let why = request.volume_capabilities.iter().find_map(refusal);
        let why = why.or_else(|| class.err().map(|status| status.message().to_owned()));
        let why = why.or_else(|| other.map(|other| format!("the volume has a different {other}")));
        Ok(match why {
            Some(message) => ValidateAnswer { confirmed: None, message },
            None => ValidateAnswer {
                confirmed: Some(Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    mutable_parameters: request.mutable_parameters,
                }),
                message: String::new(),
            },
        })
    }

    pub(crate) fn list_volumes(
        &self,
        request: ListVolumesRequest,
    ) -> Result<ListVolumesAnswer, Status> {
        let mut volumes = self.daemon.volumes()?;
        volumes.retain(|volume| !is_unfinished(&volume.name));
        let (volumes, next_token) =
            page(volumes, |it| &it.name, request.max_entries, &request.starting_token)?;
        let entry = |volume: &Volume| VolumeAnswer { volume: Some(self.describe(volume)) };
        Ok(ListVolumesAnswer { entries: volumes.iter().map(entry).collect(), next_token })
    }

    pub(crate) fn show_volume(&self, request: VolumeId) -> Result<VolumeAnswer, Status> {
        let volume = self.daemon.known_volume(&request.volume_id)?;
        Ok(VolumeAnswer { volume: Some(self.describe(&volume)) })
    }

    pub(crate) fn volume_health(&self, request: VolumeId) -> Result<HealthAnswer, Status> {
        let volume = self.daemon.known_volume(&request.volume_id)?;
        self.health_of(&volume, None)
    }

    /// Expands a volume, also while it is in use. A volume that is large enough is not changed.
    pub(crate) fn expand_volume(&self, request: ExpandRequest) -> Result<ExpandAnswer, Status> {
        let range = request.capacity_range.unwrap_or_default();
        if range.required_bytes <= 0 && range.limit_bytes <= 0 || range.required_bytes < 0 {
            return Err(Status::invalid_argument("the request has no size"));
        }
        let _guard = self.busy.begin(&request.volume_id)?;
        let volume = self.daemon.known_volume(&request.volume_id)?;
        let volume = self.enlarge(volume, &range)?;
        let capacity_bytes = volume.size_bytes.cast_signed();
        Ok(ExpandAnswer { capacity_bytes, node_expansion_required: true })
    }
}
