//! REST client of this host's daemon, which is the only authority on volumes.

use std::collections::BTreeSet;
use std::path::Path;

use api::{
    AttachAs, Attachment, AttachmentCreate, CloneCreate, Method, Pool, ProblemKind, Snapshot,
    SnapshotCreate, Volume, VolumeCreate, VolumePatch,
};
use rest_client::{Address, Client, RestError};
use serde::de::IgnoredAny;
use tonic::{Code, Status};

/// Owner of all volumes that the driver creates.
pub(crate) const OWNER: &str = "memlane-csi";

/// Label with the name under which the cluster requested a volume.
pub(crate) const NAME_LABEL: &str = "csi/name";

/// The daemon of this node.
pub(crate) struct Daemon {
    client: Client,
}

impl Daemon {
    pub(crate) fn at(socket: &Path) -> Self {
        Self { client: Client { address: Address::Socket(socket.to_owned()) } }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.client.get::<IgnoredAny>(api::READINESS_PATH).is_ok()
    }

    pub(crate) fn status(&self) -> Result<api::Status, Status> {
        self.client.get(api::STATUS_PATH).map_err(status_of)
    }

    pub(crate) fn pool(&self) -> Result<Pool, Status> {
        self.client.get(api::POOL_PATH).map_err(status_of)
    }

    /// Lists the driver's volumes, sorted by name.
    pub(crate) fn volumes(&self) -> Result<Vec<Volume>, Status> {
        let mut volumes: Vec<Volume> = self.client.get(api::VOLUMES_PATH).map_err(status_of)?;
        volumes.retain(is_of_driver);
        volumes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(volumes)
    }

    pub(crate) fn volume(&self, name: &str) -> Result<Option<Volume>, Status> {
        there(self.client.get(&api::path_of(api::VOLUME_PATH, name)))
    }

    /// Returns the volume. Fails with `NOT_FOUND` if it does not exist.
    pub(crate) fn known_volume(&self, name: &str) -> Result<Volume, Status> {
        if name.is_empty() {
            return Err(Status::invalid_argument("the request has no volume id"));
        }
        self.volume(name)?.ok_or_else(|| no_volume(name))
    }

    pub(crate) fn create(&self, request: &VolumeCreate) -> Result<(), Status> {
        let made = self.client.send(Method::Post, api::VOLUMES_PATH, request);
        made.map(drop).map_err(status_of)
    }

    /// Clones a volume or a snapshot.
    pub(crate) fn clone(&self, source: &str, name: &str) -> Result<(), Status> {
        let path = api::path_of(api::CLONE_PATH, source);
        let request = CloneCreate { name: name.to_owned() };
        self.client.send(Method::Post, &path, &request).map(drop).map_err(status_of)
    }

    pub(crate) fn change(&self, name: &str, patch: &VolumePatch) -> Result<Volume, Status> {
        let path = api::path_of(api::VOLUME_PATH, name);
        self.client.ask(Method::Patch, &path, patch).map_err(status_of)
    }

    /// Deletes an unused volume. Succeeds if it does not exist.
    pub(crate) fn delete(&self, name: &str) -> Result<(), Status> {
        there(self.client.delete(&api::path_of(api::VOLUME_PATH, name))).map(drop)
    }

    pub(crate) fn snapshots(&self) -> Result<Vec<Snapshot>, Status> {
        self.client.get(api::SNAPSHOTS_PATH).map_err(status_of)
    }

    pub(crate) fn snapshot(&self, name: &str) -> Result<Option<Snapshot>, Status> {
        // Without `@`, the path would name something else.
        if !name.contains('@') {
            return Ok(None);
        }
        there(self.client.get(&api::path_of(api::SNAPSHOT_PATH, name)))
    }

    pub(crate) fn take_snapshot(&self, volume: &str, snapshot: &str) -> Result<Snapshot, Status> {
        let taken = self.take_snapshots(&BTreeSet::from([volume.to_owned()]), snapshot)?;
        taken.into_iter().next().ok_or_else(|| Status::internal("memlaned returned no snapshot"))
    }

    /// Takes snapshots of all volumes at one instant, or fails without taking any.
    pub(crate) fn take_snapshots(
        &self,
        volumes: &BTreeSet<String>,
        snapshot: &str,
    ) -> Result<Vec<Snapshot>, Status> {
        let volumes = volumes.iter().cloned().collect();
        let request = SnapshotCreate { volumes, snapshot: snapshot.to_owned() };
        self.client.ask(Method::Post, api::SNAPSHOTS_PATH, &request).map_err(status_of)
    }

    /// Deletes an unused snapshot. Succeeds if it does not exist.
    pub(crate) fn delete_snapshot(&self, name: &str) -> Result<(), Status> {
        there(self.client.delete(&api::path_of(api::SNAPSHOT_PATH, name))).map(drop)
    }

    /// Returns the block device of a volume. Attaches the volume if necessary.
    pub(crate) fn attach(&self, volume: &Volume) -> Result<String, Status> {
        if let Some(device) = &volume.device {
            return Ok(device.clone());
        }
        let name = volume.name.clone();
        let request = AttachmentCreate {
            volume: name,
            attach_as: AttachAs::Auto,
            share: false,
            flush_each_write: false,
        };
        let attached = self.client.ask(Method::Post, api::ATTACHMENTS_PATH, &request);
        let attached: Attachment = attached.map_err(status_of)?;
        attached.device.ok_or_else(|| {
            let name = &volume.name;
            Status::internal(format!(
                "volume {name:?} is attached without a device; run memlane \
                                      detach {name}"
            ))
        })
    }

    /// Detaches the volume's device, if it has one. Fails if the device is in use.
    pub(crate) fn detach(&self, volume: &str) -> Result<(), Status> {
        there(self.client.delete(&api::path_of(api::ATTACHMENT_PATH, volume))).map(drop)
    }
}

/// Returns whether the driver created the volume, and so may delete it.
pub(crate) fn is_of_driver(volume: &Volume) -> bool {
    volume.owner.as_deref() == Some(OWNER) || volume.labels.contains_key(NAME_LABEL)
}

pub(crate) fn no_volume(name: &str) -> Status {
    Status::not_found(format!("no volume {name:?} on this node"))
}

/// Returns `None` if the object does not exist or its name is invalid.
fn there<T>(asked: Result<T, RestError>) -> Result<Option<T>, Status> {
    match asked {
        Ok(found) => Ok(Some(found)),
        Err(RestError::Refused(problem))
            if matches!(problem.kind, ProblemKind::NotFound | ProblemKind::InvalidField) =>
        {
            Ok(None)
        }
        Err(error) => Err(status_of(error)),
    }
}

fn status_of(error: RestError) -> Status {
    let code = match &error {
        RestError::Refused(problem) => code_of(problem.kind),
        RestError::Unreachable(_) => Code::Unavailable,
        RestError::RefusedByConsole { .. } | RestError::Other(_) => Code::Internal,
    };
    Status::new(code, error.to_string())
}

fn code_of(kind: ProblemKind) -> Code {
    match kind {
        ProblemKind::InvalidRequest | ProblemKind::InvalidField | ProblemKind::UnknownField => {
            Code::InvalidArgument
        }
        ProblemKind::NotFound => Code::NotFound,
        ProblemKind::AlreadyExists => Code::AlreadyExists,
        ProblemKind::InUse
        | ProblemKind::NotSupported
        | ProblemKind::DataBehindNewEnd
        | ProblemKind::Loss
        | ProblemKind::Ended
        | ProblemKind::Standby => Code::FailedPrecondition,
        ProblemKind::Busy | ProblemKind::PreconditionFailed => Code::Aborted,
        ProblemKind::NoSpace | ProblemKind::TooManyVolumes => Code::ResourceExhausted,
        ProblemKind::Starting | ProblemKind::ShuttingDown | ProblemKind::Timeout => {
            Code::Unavailable
        }
        ProblemKind::Forbidden => Code::PermissionDenied,
        ProblemKind::UnknownPath
        | ProblemKind::MethodNotAllowed
        | ProblemKind::BodyTooLarge
        | ProblemKind::HostFailed
        | ProblemKind::Internal => Code::Internal,
    }
}
