//! Backends of the log benchmark.

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Mode, OFlags, open};
use serde::{Serialize, Serializer};

use super::broker::BrokerKind;
use super::embedded::Embedded;
use super::medium::Medium;
use super::memory::Memory;
use crate::targets::{Access, Kind, Place, Spec, Target};

/// A backend for the log, not yet set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogBackend {
    /// A volume of an engine in this process.
    Embedded,
    /// Copies to and from bare memory: the floor.
    Memory,
    /// A file or block device.
    Target(Kind),
    /// A broker, over Kafka's protocol.
    Broker(BrokerKind),
}

impl LogBackend {
    /// Returns the default backends.
    pub(crate) fn usual() -> Vec<Self> {
        let kinds = [Kind::Volume, Kind::Tmpfs, Kind::Zram, Kind::Disk];
        let brokers = [BrokerKind::Memlane, BrokerKind::Kafka].map(Self::Broker);
        let media = [Self::Embedded, Self::Memory].into_iter().chain(kinds.map(Self::Target));
        media.chain(brokers).collect()
    }

    /// Returns the reason why it is unavailable here, or `None`.
    pub(crate) fn missing(&self, place: &Place) -> Option<String> {
        match self {
            Self::Embedded | Self::Memory => None,
            Self::Target(kind) => Spec::from(kind.clone()).missing(place),
            Self::Broker(kind) => kind.missing(),
        }
    }

    pub(crate) fn memory_bytes(&self, place: &Place) -> u64 {
        match self {
            Self::Embedded => Embedded::pool_bytes(place.size_bytes),
            Self::Memory => place.size_bytes,
            Self::Target(kind) => Spec::from(kind.clone()).memory_bytes(place),
            Self::Broker(kind) => kind.memory_bytes(place.size_bytes),
        }
    }

    /// Returns its approximate write throughput, for plans.
    pub(crate) fn bytes_per_s_expected(&self) -> u64 {
        match self {
            Self::Memory => 10 << 30,
            Self::Embedded => 5 << 30,
            Self::Target(Kind::Disk | Kind::Path(_)) => 300 << 20,
            Self::Target(Kind::Tmpfs) => 4 << 30,
            Self::Broker(BrokerKind::Memlane) => 1 << 30,
            Self::Target(_) | Self::Broker(BrokerKind::Kafka) => 500 << 20,
        }
    }

    /// Opens a backend that stores bytes at offsets, which excludes brokers.
    pub(crate) fn open(&self, place: &Place) -> Result<OpenBackend> {
        let on = |medium: Box<dyn Medium>| OpenBackend { medium, target: None };
        match self {
            Self::Embedded => Ok(on(Box::new(Embedded::new(place.size_bytes, 1)?))),
            Self::Memory => Ok(on(Box::new(Memory::new(place.size_bytes)))),
            Self::Target(kind) => {
                let target = Spec::from(kind.clone()).open(place)?;
                let medium = match target.access() {
                    Access::File { path, direct } => DeviceOrFile::open(path, *direct)?,
                    _ => bail!("{self} is neither a file nor a block device"),
                };
                let size_bytes = target.size_bytes();
                ensure!(size_bytes >= place.size_bytes, "{self} has only {size_bytes} bytes");
                Ok(OpenBackend { medium: Box::new(medium), target: Some(target) })
            }
            Self::Broker(kind) => bail!("unknown medium {kind}"),
        }
    }
}

impl fmt::Display for LogBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => f.write_str("volume embedded"),
            Self::Memory => f.write_str("bare memory"),
            Self::Target(kind) => kind.fmt(f),
            Self::Broker(kind) => kind.fmt(f),
        }
    }
}

impl FromStr for LogBackend {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> Result<Self> {
        match word {
            "embedded" => Ok(Self::Embedded),
            "memory" => Ok(Self::Memory),
            "broker" => Ok(Self::Broker(BrokerKind::Memlane)),
            "kafka" => Ok(Self::Broker(BrokerKind::Kafka)),
            word => {
                let kind = word.parse();
                let known = "invalid storage of the log; use embedded, memory, a target, broker \
                             or kafka";
                kind.map(Self::Target).context(known)
            }
        }
    }
}

impl Serialize for LogBackend {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A medium with its target, which is dropped after it.
pub(crate) struct OpenBackend {
    pub(crate) medium: Box<dyn Medium>,
    pub(crate) target: Option<Target>,
}

/// A device or file, opened for direct I/O if possible.
struct DeviceOrFile {
    file: File,
    is_direct: bool,
}

impl DeviceOrFile {
    fn open(path: &Path, is_direct: bool) -> Result<Self> {
        let past_cache = if is_direct { OFlags::DIRECT } else { OFlags::empty() };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | past_cache;
        let opened = open(path, flags, Mode::empty());
        let file = File::from(opened.with_context(|| format!("cannot open {}", path.display()))?);
        Ok(Self { file, is_direct })
    }
}

impl Medium for DeviceOrFile {
    fn append(&self, offset_bytes: u64, batch: &[u8]) -> Result<()> {
        self.file.append(offset_bytes, batch)
    }

    fn read(&self, offset_bytes: u64, batch: &mut [u8]) -> Result<()> {
        self.file.read(offset_bytes, batch)
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    fn flags(&self) -> Vec<String> {
        let is_cached = !self.is_direct;
        is_cached.then(|| "through the page cache".to_owned()).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::drive::{Load, Log, Loop, Sync, Threads};
    use super::super::message::Batches;
    use super::super::mix::Mix;
    use super::*;
    use crate::contents::Data;

    #[test]
    fn sites_are_named_by_the_words_of_targets_and_four_more() {
        let parsed = |word: &str| word.parse::<LogBackend>().ok();
        assert_eq!(parsed("embedded"), Some(LogBackend::Embedded));
        assert_eq!(parsed("memory"), Some(LogBackend::Memory));
        assert_eq!(parsed("broker"), Some(LogBackend::Broker(BrokerKind::Memlane)));
        assert_eq!(parsed("kafka"), Some(LogBackend::Broker(BrokerKind::Kafka)));
        assert_eq!(parsed("zram"), Some(LogBackend::Target(Kind::Zram)));
        assert_eq!(parsed("floppy"), None);
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let place = Place::new(16 << 20, None);
        let error = LogBackend::Target(Kind::Null).open(&place).err().expect("it is nothing");
        assert!(error.to_string().contains("neither a file nor a block device"), "{error:#}");
    }

    #[test]
    fn logs_on_a_volume_in_memory_and_on_files_come_back_as_they_were_written() {
        let place = Place::new(16 << 20, None);
        for backend in [LogBackend::Embedded, LogBackend::Memory, LogBackend::Target(Kind::Tmpfs)] {
            let open_backend = backend.open(&place).expect("there is room");
            let batches = Batches::new(Data::Random, 1);
            let log = Log::fill(("log", open_backend.medium), place.size_bytes, 2, batches);
            let load = Load {
                mix: Mix::READS_80,
                threads: Threads::Apart,
                readers: 2,
                data: Data::Mixed,
                sync: Sync::Never,
                pacing: Loop::Closed,
                seed: 5,
                ramp: Duration::ZERO,
                duration: Duration::from_millis(300),
            };
            let measured = log.and_then(|log| log.measure(&load));
            let measured = measured.unwrap_or_else(|error| panic!("{backend}: {error:#}"));
            assert!(measured.reads.operations() > 0, "{backend}");
        }
    }
}
