//! Volumes of a daemon on this host: managed through its REST interface, read and written through
//! the ring.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::storage::FileLock;
use anyhow::Context;
use api::{
    Capacity, Method, ProblemKind, SectorBytes, Volume, VolumeCreate, VolumeMirror, VolumePatch,
};
use block_device::BlockDevice;
use rest_client::{Address, Client, RestError};
use rustix::io::Errno;
use sdk::{ClientOptions, Device, Target};
use volumes::{Durability, Reduction};

use super::in_use::VolumesInUse;
use super::resting::Resting;
use super::ring_volume::RingVolume;
use super::{
    Peeked, Storage, StorageError, StorageErrorKind, StoredVolume, VOLUME_BYTES, VolumeClass,
};
use crate::waiting;

/// Names of the daemon's sockets in its run directory.
const API_SOCKET: &str = "api.sock";
const RING_SOCKET: &str = "ring.sock";

/// Name of the lock file there, with the permissions of the sockets. The directory itself is not
/// locked, because any user can open it, and could block all brokers by locking it.
const LOCK: &str = "broker.lock";

/// Maximum wait for the lock, which may be held by a killed broker, or by the daemon while it
/// restores a volume.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Owner of the volumes as told to the daemon.
const OWNER: &str = "memlane-broker";

/// Time to wait for an unavailable daemon before reads and writes fail.
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of readiness checks per check of the volumes, whose list is long.
const LOOK_ROUNDS: u32 = 10;

const NO_PANIC: &str = "no thread panics with this lock";

/// Connection to a daemon and its volumes.
#[derive(Debug)]
pub(crate) struct Daemon {
    rest: Client,
    ring: PathBuf,
    in_use: Arc<VolumesInUse>,
    resting: Resting,
    /// Number of readiness checks.
    round: Mutex<u32>,
    /// Excludes a second broker, which would write to the same topics.
    _lock: FileLock,
}

impl Daemon {
    /// Connects to the daemon with its sockets in this directory, usually `/run/memlane`. Fails if
    /// another broker uses it.
    pub(crate) fn open(run_dir: &Path) -> anyhow::Result<Self> {
        let path = run_dir.join(LOCK);
        let place = path.display();
        let lock = File::open(&path).with_context(|| {
            format!(
                "cannot open {place}; check that memlaned runs and that this user may use \
                     its sockets"
            )
        })?;
        let taken = FileLock::take_within(lock, LOCK_WAIT_MAX);
        let lock = taken.with_context(|| format!("cannot lock {place}"))?.with_context(|| {
            format!("cannot lock {place}: another broker uses this daemon; stop it first")
        })?;
        let rest = Client { address: Address::Socket(run_dir.join(API_SOCKET)) };
        let (in_use, round) = <(Arc<VolumesInUse>, Mutex<u32>)>::default();
        let resting = Resting::start().context("cannot start a thread")?;
        Ok(Self { rest, ring: run_dir.join(RING_SOCKET), in_use, resting, round, _lock: lock })
    }

    /// Opens a volume on a connection of its own, in one exchange with the daemon.
    fn connect(&self, name: &str) -> Result<Device, StorageError> {
        let around_waits = waiting::beside_others;
        let options =
            ClientOptions { patience: PATIENCE, around_waits, ..ClientOptions::default() };
        let opened = sdk::Client::connect_with(&self.ring, options)
            .and_then(|client| client.open(&Target::Name(name.to_owned())));
        opened.map_err(|error| {
            let kind = match Errno::from_raw_os_error(error.errno()) {
                Errno::NOENT => StorageErrorKind::Missing,
                _ => StorageErrorKind::Failed,
            };
            StorageError::new(kind, format!("cannot open volume {name}: {error}"))
        })
    }

    /// Checks that all volumes in use exist.
    fn look_for_volumes(&self) -> Result<(), StorageError> {
        let before = self.in_use.all();
        let volumes: Vec<Volume> = self.rest.get(api::VOLUMES_PATH).map_err(refused)?;
        let owners = volumes.into_iter().map(|volume| (volume.id, volume.owner)).collect();
        self.in_use.unowned(&owners).iter().for_each(|volume| self.claim(volume));
        match self.in_use.missing(&before, &owners) {
            None => Ok(()),
            Some(what) => Err(StorageError::new(StorageErrorKind::Missing, what)),
        }
    }

    /// Sets the owner of a volume that an earlier release created, or that was restored from an
    /// image.
    fn claim(&self, volume: &str) {
        let path = api::path_of(api::VOLUME_PATH, volume);
        let patch = VolumePatch { owner: Some(OWNER.to_owned()), ..VolumePatch::default() };
        let claimed: Result<Volume, RestError> = self.rest.ask(Method::Patch, &path, &patch);
        if let Err(error) = claimed {
            tracing::debug!(volume, %error, "cannot set the owner of the volume");
        }
    }
}

impl Storage for Daemon {
    fn volumes(&self) -> Result<Vec<StoredVolume>, StorageError> {
        let volumes: Vec<Volume> = self.rest.get(api::VOLUMES_PATH).map_err(refused)?;
        let stored = |volume: Volume| StoredVolume { class: class_of(&volume), name: volume.name };
        Ok(volumes.into_iter().map(stored).collect())
    }

    fn create(&self, name: &str, class: VolumeClass) -> Result<Arc<dyn BlockDevice>, StorageError> {
        let create = VolumeCreate {
            name: name.to_owned(),
            size: api::ByteSize(VOLUME_BYTES),
            sector_bytes: SectorBytes::Bytes4096,
            reduction: reduction(class.reduction),
            durability: durability(class.durability),
            capacity: Capacity::Thin,
            mirror: VolumeMirror::Yes,
            owner: OWNER.to_owned(),
            labels: BTreeMap::new(),
        };
        let _made: Volume =
            self.rest.ask(Method::Post, api::VOLUMES_PATH, &create).map_err(refused)?;
        self.open(name)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, StorageError> {
        self.peek(name).map(Peeked::keep)
    }

    /// Opens a volume without marking it as in use, or claiming it.
    fn peek(&self, name: &str) -> Result<Peeked, StorageError> {
        let device = self.connect(name)?;
        let id = device.volume_id();
        let volume = Arc::new(RingVolume::new(device));
        let (in_use, resting) = (Arc::clone(&self.in_use), self.resting.clone());
        let (used, name) = (Arc::clone(&volume), name.to_owned());
        let note_use = Box::new(move || {
            used.hold(in_use.hold(id, name));
            resting.add(&used);
        });
        Ok(Peeked { device: volume, note_use: Some(note_use) })
    }

    fn class_of(&self, name: &str) -> Result<VolumeClass, StorageError> {
        let path = api::path_of(api::VOLUME_PATH, name);
        self.rest.get(&path).map(|volume: Volume| class_of(&volume)).map_err(refused)
    }

    fn rename(&self, name: &str, new_name: &str) -> Result<(), StorageError> {
        // The owner itself requests the change.
        let (name_now, force) = (Some(new_name.to_owned()), true);
        let patch = VolumePatch { name: name_now, force, ..VolumePatch::default() };
        let path = api::path_of(api::VOLUME_PATH, name);
        let renamed: Volume = self.rest.ask(Method::Patch, &path, &patch).map_err(refused)?;
        self.in_use.rename(renamed.id, &renamed.name);
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
        // The broker's own ring connection to the volume is closed by this.
        let path = format!("{}?force=true", api::path_of(api::VOLUME_PATH, name));
        let taken = self.in_use.take(name);
        let deleted = self.rest.delete(&path).map_err(refused);
        if deleted.as_ref().is_err_and(|error| error.kind != StorageErrorKind::Missing) {
            self.in_use.put_back(taken);
        }
        deleted
    }

    fn pool_bytes(&self) -> Result<u64, StorageError> {
        let pool: api::Pool = self.rest.get(api::POOL_PATH).map_err(refused)?;
        Ok(pool.max_memory_bytes)
    }

    fn reach(&self) -> Result<(), StorageError> {
        let _ready: api::Health = self.rest.get(api::READINESS_PATH).map_err(refused)?;
        let mut round = self.round.lock().expect(NO_PANIC);
        if round.is_multiple_of(LOOK_ROUNDS) {
            // Repeated in the next round after an error.
            self.look_for_volumes()?;
        }
        *round = round.wrapping_add(1);
        Ok(())
    }
}

fn class_of(volume: &Volume) -> VolumeClass {
    VolumeClass {
        durability: found(Durability::ALL, durability, volume.durability),
        reduction: found(Reduction::ALL, reduction, volume.reduction),
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

/// Returns the choice with this word in the REST interface.
fn found<Choice: Copy, Word: PartialEq, const COUNT: usize>(
    choices: [Choice; COUNT],
    word_of: impl Fn(Choice) -> Word,
    word: Word,
) -> Choice {
    let choice = choices.into_iter().find(|choice| word_of(*choice) == word);
    choice.expect("each word is that of one choice")
}

fn refused(error: RestError) -> StorageError {
    let kind = match &error {
        RestError::Refused(problem) => match problem.kind {
            ProblemKind::AlreadyExists => StorageErrorKind::Exists,
            ProblemKind::NotFound => StorageErrorKind::Missing,
            ProblemKind::NoSpace => StorageErrorKind::NoSpace,
            ProblemKind::TooManyVolumes => StorageErrorKind::TooMany,
            ProblemKind::NotSupported | ProblemKind::InvalidField => StorageErrorKind::Unsupported,
            _ => StorageErrorKind::Failed,
        },
        // The broker does not connect to its daemon through a console.
        RestError::Unreachable(_) | RestError::RefusedByConsole { .. } | RestError::Other(_) => {
            StorageErrorKind::Failed
        }
    };
    StorageError::new(kind, error)
}
