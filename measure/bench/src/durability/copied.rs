//! Volumes for the random overwrite benchmark, with snapshots.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use block_device::{BlockDevice, SectorSize};
use maintenance::Maintenance;
use rustix::fs::OFlags;
use system::{Ability, Interruption, NbdClient, Request, attach, missing};
use volumes::{Engine, EngineOptions, Volume, VolumeSpec};

use super::rest::Rest;
use super::setup::{DiskFolder, start_daemon};
use crate::aligned::Aligned;
use crate::contents::{Contents, Data};
use crate::pool::Place;
use crate::targets::OwnDaemon;

const VOLUME: &str = "bench";
const PIECE_BYTES: usize = 1 << 20;

/// Access path of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// Calls into an engine in this process.
    Embedded,
    Attached,
    Nbd,
}

impl Reached {
    pub(super) const ALL: [Self; 3] = [Self::Embedded, Self::Attached, Self::Nbd];

    pub(super) fn missing(self) -> Option<String> {
        match self {
            Self::Attached => missing(&[Ability::BlockDevices]),
            Self::Embedded | Self::Nbd => None,
        }
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Embedded => "volume embedded",
            Self::Attached => "volume attached",
            Self::Nbd => "volume NBD",
        })
    }
}

/// Returns the pool size for a volume, the data kept by one snapshot, and that of another being
/// deleted.
pub(super) fn pool_bytes(size_bytes: u64) -> u64 {
    (size_bytes * 3 + size_bytes / 4 + (256 << 20)).next_multiple_of(2 << 20)
}

/// A filled volume.
pub(super) enum Copied {
    Embedded { volume: Arc<Volume>, engine: Arc<Engine>, _maintenance: Maintenance, _place: Place },
    Served { device: Option<PathBuf>, daemon: OwnDaemon, _folder: DiskFolder },
}

/// Writer of whole blocks, used by one thread.
pub(super) trait Overwrite {
    fn overwrite(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()>;
}

/// Creates and deletes snapshots concurrently with overwrites.
#[derive(Clone)]
pub(super) enum Copier {
    Embedded(Arc<Engine>),
    Served(Rest),
}

impl Copied {
    pub(super) fn new(reached: Reached, size_bytes: u64) -> Result<Self> {
        let copied = match reached {
            Reached::Embedded => Self::embedded(size_bytes)?,
            Reached::Attached | Reached::Nbd => Self::served(reached, size_bytes)?,
        };
        let mut contents = Contents::new(Data::Random, PIECE_BYTES, 1);
        let mut way = copied.open()?;
        for offset_bytes in (0..size_bytes).step_by(PIECE_BYTES) {
            ensure!(!Interruption::is_asked_for(), "interrupted while the volume is filled");
            way.overwrite(offset_bytes, contents.next())?;
        }
        drop(way);
        Ok(copied)
    }

    fn embedded(size_bytes: u64) -> Result<Self> {
        let place = Place::new()?;
        let options = EngineOptions { lane_count: 3, fresh_secret: [0x5A; 32] };
        let engine = Engine::open(place.region("pool", pool_bytes(size_bytes))?, options)?;
        let sector = SectorSize::Bytes4096;
        let spec = VolumeSpec { sector, ..VolumeSpec::new(VOLUME.parse()?, size_bytes) };
        let volume = engine.create_volume(spec)?;
        let engine = Arc::new(engine);
        let maintenance = Maintenance::start(Arc::clone(&engine), |_| {})
            .context("cannot start the maintenance thread")?;
        Ok(Self::Embedded { volume, engine, _maintenance: maintenance, _place: place })
    }

    fn served(reached: Reached, size_bytes: u64) -> Result<Self> {
        let folder = DiskFolder::new()?;
        let daemon = start_daemon(&folder, pool_bytes(size_bytes))?;
        let words = format!("volume create {VOLUME} --size {size_bytes} --sector 4096");
        daemon.get().memlane(&words)?;
        let device = match reached {
            Reached::Attached => Some(attach(daemon.get(), VOLUME)?),
            _ => None,
        };
        Ok(Self::Served { device, daemon, _folder: folder })
    }

    pub(super) fn open(&self) -> Result<Box<dyn Overwrite>> {
        Ok(match self {
            Self::Embedded { volume, .. } => Box::new(Arc::clone(volume)),
            Self::Served { device: Some(device), .. } => Box::new(DirectDevice::open(device)?),
            Self::Served { daemon, .. } => {
                Box::new(NbdClient::connect(&daemon.get().nbd_socket(), VOLUME)?)
            }
        })
    }

    pub(super) fn copier(&self) -> Copier {
        match self {
            Self::Embedded { engine, .. } => Copier::Embedded(Arc::clone(engine)),
            Self::Served { daemon, .. } => Copier::Served(Rest::of(daemon.get())),
        }
    }

    pub(super) fn server_ids(&self) -> Vec<u32> {
        match self {
            Self::Embedded { .. } => Vec::new(),
            Self::Served { daemon, .. } => daemon.get().id().into_iter().collect(),
        }
    }
}

impl Copier {
    pub(super) fn create(&self, name: &str) -> Result<()> {
        match self {
            Self::Embedded(engine) => {
                engine.create_snapshots(&[VOLUME], &name.parse()?, 0)?;
                Ok(())
            }
            Self::Served(rest) => {
                let volumes = vec![VOLUME.to_owned()];
                let wish = api::SnapshotCreate { volumes, snapshot: name.to_owned() };
                rest.post(api::SNAPSHOTS_PATH, &wish)
            }
        }
    }

    pub(super) fn delete(&self, name: &str) -> Result<()> {
        match self {
            Self::Embedded(engine) => Ok(engine.delete_snapshot(VOLUME, name)?),
            Self::Served(rest) => rest.delete(&format!("{}/{VOLUME}@{name}", api::SNAPSHOTS_PATH)),
        }
    }
}

impl Overwrite for Arc<Volume> {
    fn overwrite(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        Ok(BlockDevice::write(&**self, offset_bytes, bytes)?)
    }
}

impl Overwrite for NbdClient {
    fn overwrite(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        self.ask(&Request::Write { offset: offset_bytes, data: bytes.to_vec() })?;
        Ok(())
    }
}

/// A block device opened for direct I/O.
struct DirectDevice {
    file: File,
    buffer: Aligned,
}

impl DirectDevice {
    fn open(device: &PathBuf) -> Result<Self> {
        let flags = i32::try_from(OFlags::DIRECT.bits()).context("a flag of the kernel")?;
        let opened = File::options().read(true).write(true).custom_flags(flags).open(device);
        let file = opened.with_context(|| format!("cannot open {}", device.display()))?;
        Ok(Self { file, buffer: Aligned::new(PIECE_BYTES) })
    }
}

impl Overwrite for DirectDevice {
    fn overwrite(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        let aligned = &mut self.buffer.bytes_mut()[..bytes.len()];
        aligned.copy_from_slice(bytes);
        Ok(self.file.write_all_at(aligned, offset_bytes)?)
    }
}
