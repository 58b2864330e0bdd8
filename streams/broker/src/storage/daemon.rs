//! Volumes of a daemon on this host: made and deleted over its REST interface, read and written
//! through the ring.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use api::{Capacity, Method, ProblemKind, SectorBytes, Volume, VolumeCreate, VolumePatch};
use block_device::BlockDevice;
use rest_client::{Address, Client, RestError};
use rustix::fs::{FlockOperation, flock};
use sdk::{ClientOptions, Target};
use volumes::{Durability, Reduction};

use super::ring_volume::RingVolume;
use super::{Storage, StorageError, StorageErrorKind, VOLUME_BYTES, VolumeClass};

/// The daemon's sockets, in its run directory.
const API_SOCKET: &str = "api.sock";
const RING_SOCKET: &str = "ring.sock";

/// What the broker locks there: a file for those who may use the sockets. Any user can open the
/// directory, and would keep every broker out by a lock of that.
const LOCK: &str = "broker.lock";

/// A daemon that has gone is waited for so long before reads and writes fail.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// A daemon, and the way to its volumes.
#[derive(Debug)]
pub(crate) struct Daemon {
    rest: Client,
    ring: PathBuf,
    /// Held: two brokers would write to the same topics.
    _lock: File,
}

impl Daemon {
    /// The daemon that has its sockets in this directory, most often `/run/memlane`. Refused while
    /// another broker uses it.
    pub(crate) fn open(run_dir: &Path) -> anyhow::Result<Self> {
        let path = run_dir.join(LOCK);
        let place = path.display();
        let lock = File::open(&path).with_context(|| {
            format!("cannot open {place}, which memlaned makes for those who may use its sockets")
        })?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).with_context(|| {
            format!("cannot lock {place}: another broker serves the topics of this daemon")
        })?;
        let rest = Client { address: Address::Socket(run_dir.join(API_SOCKET)) };
        Ok(Self { rest, ring: run_dir.join(RING_SOCKET), _lock: lock })
    }
}

impl Storage for Daemon {
    fn names(&self) -> Result<Vec<String>, StorageError> {
        let volumes: Vec<Volume> = self.rest.get(api::VOLUMES_PATH).map_err(refused)?;
        Ok(volumes.into_iter().map(|volume| volume.name).collect())
    }

    fn create(&self, name: &str, class: VolumeClass) -> Result<Arc<dyn BlockDevice>, StorageError> {
        let create = VolumeCreate {
            name: name.to_owned(),
            size: api::ByteSize(VOLUME_BYTES),
            sector_bytes: SectorBytes::Bytes4096,
            reduction: reduction(class.reduction),
            durability: durability(class.durability),
            capacity: Capacity::Thin,
        };
        let _made: Volume =
            self.rest.ask(Method::Post, api::VOLUMES_PATH, &create).map_err(refused)?;
        self.open(name)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, StorageError> {
        let options = ClientOptions { patience: PATIENCE, ..ClientOptions::default() };
        let opened = sdk::Client::connect_with(&self.ring, options)
            .and_then(|client| client.open(&Target::Name(name.to_owned())));
        let device = opened.map_err(|error| {
            StorageError::new(
                StorageErrorKind::Failed,
                format!("cannot open volume {name}: {error}"),
            )
        })?;
        Ok(Arc::new(RingVolume::new(device)))
    }

    fn rename(&self, name: &str, new_name: &str) -> Result<(), StorageError> {
        let patch = VolumePatch { name: Some(new_name.to_owned()), ..VolumePatch::default() };
        let path = api::path_of(api::VOLUME_PATH, name);
        let _renamed: Volume = self.rest.ask(Method::Patch, &path, &patch).map_err(refused)?;
        Ok(())
    }

    fn set_class(&self, name: &str, class: VolumeClass) -> Result<(), StorageError> {
        let patch = VolumePatch {
            reduction: Some(reduction(class.reduction)),
            durability: Some(durability(class.durability)),
            ..VolumePatch::default()
        };
        let path = api::path_of(api::VOLUME_PATH, name);
        let _changed: Volume = self.rest.ask(Method::Patch, &path, &patch).map_err(refused)?;
        Ok(())
    }

    fn delete(&self, name: &str) -> Result<(), StorageError> {
        // The broker's own client of the ring has it open, and is disconnected by this.
        let path = format!("{}?force=true", api::path_of(api::VOLUME_PATH, name));
        self.rest.delete(&path).map_err(refused)
    }

    fn reach(&self) -> Result<(), StorageError> {
        let _ready: api::Health = self.rest.get(api::READINESS_PATH).map_err(refused)?;
        Ok(())
    }
}

fn reduction(asked: Reduction) -> api::Reduction {
    match asked {
        Reduction::Full => api::Reduction::Full,
        Reduction::Compress => api::Reduction::Compress,
        Reduction::Dedup => api::Reduction::Dedup,
        Reduction::None => api::Reduction::None,
    }
}

fn durability(asked: Durability) -> api::Durability {
    match asked {
        Durability::Ram => api::Durability::Ram,
        Durability::Image => api::Durability::Image,
        Durability::Journal => api::Durability::Journal,
    }
}

fn refused(error: RestError) -> StorageError {
    let kind = match &error {
        RestError::Refused(problem) => match problem.kind {
            ProblemKind::AlreadyExists => StorageErrorKind::Exists,
            ProblemKind::NotFound => StorageErrorKind::Missing,
            ProblemKind::NoSpace => StorageErrorKind::NoSpace,
            ProblemKind::NotSupported | ProblemKind::InvalidField => StorageErrorKind::Unsupported,
            _ => StorageErrorKind::Failed,
        },
        // A console does not stand between the broker and its daemon.
        RestError::Unreachable(_) | RestError::RefusedByConsole { .. } | RestError::Other(_) => {
            StorageErrorKind::Failed
        }
    };
    StorageError::new(kind, error)
}
