//! Embedded pool of the broker, for evaluation, for tests, and for use without a daemon.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use api::ByteSize;
use block_device::{BlockDevice, SectorSize};
use maintenance::Maintenance;
use region::{Region, RegionSpec};
use volumes::{Durability, Engine, EngineOptions, VolumeError, VolumeErrorKind, VolumeSpec};

use super::{Storage, StorageError, StorageErrorKind, StoredVolume, VOLUME_BYTES, VolumeClass};

/// More than the number of processors, so that threads that wait for a disk do not block others.
const LANE_COUNT: usize = 8;

/// Minimum size of a pool that has memory for the broker's state and a topic.
const SIZE_BYTES_MIN: u64 = 6 << 20;

/// Location and size of the pool.
#[derive(Clone, Debug)]
pub(crate) struct EmbeddedPool {
    pub(crate) size_bytes: u64,
    /// File on tmpfs that outlives the broker. Without it, the pool ends with the broker.
    pub(crate) file: Option<PathBuf>,
}

pub(crate) struct Embedded {
    engine: Arc<Engine>,
    _maintenance: Maintenance,
}

impl Embedded {
    pub(crate) fn open(pool: &EmbeddedPool) -> anyhow::Result<Self> {
        if pool.size_bytes < SIZE_BYTES_MIN {
            let (size, least) = (ByteSize(pool.size_bytes), ByteSize(SIZE_BYTES_MIN));
            bail!("--embedded {size} is too small for a pool; use {least} or more");
        }
        let (path, is_temporary) = match &pool.file {
            Some(path) => (path.clone(), false),
            None => (format!("/dev/shm/memlane-broker-{}", std::process::id()).into(), true),
        };
        if is_temporary && path.exists() {
            bail!(
                "pool file {} already exists: another broker uses it, or was killed; remove it \
                 if no broker runs",
                path.display()
            );
        }
        let size_bytes = pool.size_bytes.next_multiple_of(2 << 20);
        let region = Region::open(&RegionSpec { path: path.clone(), size_bytes });
        let region = region.inspect_err(|_| {
            if is_temporary {
                let _ = std::fs::remove_file(&path);
            }
        })?;
        if is_temporary {
            // The memory is freed when it is unmapped.
            std::fs::remove_file(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
        let mut fresh_secret = [0; 32];
        getrandom::fill(&mut fresh_secret).context(
            "cannot get random bytes for the pool's hash \
                                                    key",
        )?;
        let options = EngineOptions { lane_count: LANE_COUNT, fresh_secret };
        let engine = Engine::open(region, options)
            .with_context(|| format!("cannot open the pool in {}", path.display()))?;
        let engine = Arc::new(engine);
        let maintenance = Maintenance::start(Arc::clone(&engine), |_| {})
            .context("cannot start the maintenance thread of the pool")?;
        Ok(Self { engine, _maintenance: maintenance })
    }
}

impl Storage for Embedded {
    fn volumes(&self) -> Result<Vec<StoredVolume>, StorageError> {
        let stored = |volume: &Arc<volumes::Volume>| StoredVolume {
            name: volume.name(),
            class: class_of(volume),
        };
        Ok(self.engine.volumes().iter().map(stored).collect())
    }

    fn create(&self, name: &str, class: VolumeClass) -> Result<Arc<dyn BlockDevice>, StorageError> {
        check(class)?;
        let name = name
            .parse()
            .map_err(|error| StorageError::new(StorageErrorKind::Unsupported, error))?;
        let spec = VolumeSpec {
            sector: SectorSize::Bytes4096,
            reduction: class.reduction,
            durability: class.durability,
            ..VolumeSpec::new(name, VOLUME_BYTES)
        };
        Ok(self.engine.create_volume(spec).map_err(refused)?)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, StorageError> {
        Ok(self.engine.volume(name).map_err(refused)?)
    }

    fn class_of(&self, name: &str) -> Result<VolumeClass, StorageError> {
        self.engine.volume(name).map(|volume| class_of(&volume)).map_err(refused)
    }

    fn rename(&self, name: &str, new_name: &str) -> Result<(), StorageError> {
        let new_name = new_name
            .parse()
            .map_err(|error| StorageError::new(StorageErrorKind::Unsupported, error))?;
        self.engine.rename_volume(name, new_name).map_err(refused)
    }

    fn set_class(&self, name: &str, class: VolumeClass) -> Result<(), StorageError> {
        check(class)?;
        self.engine.set_durability(name, class.durability).map_err(refused)?;
        self.engine.set_reduction(name, class.reduction).map_err(refused)
    }

    fn delete(&self, name: &str) -> Result<(), StorageError> {
        self.engine.delete_volume(name).map_err(refused)
    }

    fn pool_bytes(&self) -> Result<u64, StorageError> {
        Ok(self.engine.size_bytes())
    }

    /// Always succeeds: the pool is part of this process.
    fn reach(&self) -> Result<(), StorageError> {
        Ok(())
    }
}

fn class_of(volume: &volumes::Volume) -> VolumeClass {
    VolumeClass { durability: volume.durability(), reduction: volume.reduction() }
}

/// Checks a class. An embedded pool has neither journal nor images.
fn check(class: VolumeClass) -> Result<(), StorageError> {
    match class.durability {
        Durability::Ram => Ok(()),
        Durability::Image | Durability::Journal => {
            let what = format!(
                "durability {} requires memlaned; a broker with --embedded supports class ram \
                 only",
                class.durability
            );
            Err(StorageError::new(StorageErrorKind::Unsupported, what))
        }
    }
}

fn refused(error: VolumeError) -> StorageError {
    let kind = match error.kind {
        VolumeErrorKind::AlreadyExists => StorageErrorKind::Exists,
        VolumeErrorKind::NotFound => StorageErrorKind::Missing,
        VolumeErrorKind::NoSpace => StorageErrorKind::NoSpace,
        VolumeErrorKind::TooManyVolumes | VolumeErrorKind::TooManyDurable => {
            StorageErrorKind::TooMany
        }
        _ => StorageErrorKind::Failed,
    };
    StorageError::new(kind, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_is_too_small_is_refused_with_the_smallest_size() {
        for (size_bytes, given) in [(0, "0"), (1, "1"), (4 << 20, "4MiB")] {
            let error = Embedded::open(&EmbeddedPool { size_bytes, file: None }).err();
            let error = error.expect("it is too small").to_string();
            let text = format!("--embedded {given} is too small for a pool; use 6MiB or more");
            assert_eq!(error, text);
        }
        Embedded::open(&EmbeddedPool { size_bytes: SIZE_BYTES_MIN, file: None }).expect("it fits");
    }
}
