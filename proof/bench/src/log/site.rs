//! The things that a log is put on.

use anyhow::Result;

use super::embedded::Embedded;
use super::medium::Medium;
use super::memory::Memory;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Site {
    /// A volume of an engine in this process
    VolumeEmbedded,
    /// Copies to and from bare memory: the floor
    Memory,
}

impl Site {
    pub(crate) const ALL: [Self; 2] = [Self::VolumeEmbedded, Self::Memory];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::VolumeEmbedded => "volume embedded",
            Self::Memory => "bare memory",
        }
    }

    /// Why it cannot be had here.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::VolumeEmbedded | Self::Memory => None,
        }
    }

    /// Makes one. Dropping it takes it down.
    pub(crate) fn medium(self, size_bytes: u64) -> Result<Box<dyn Medium>> {
        match self {
            Self::VolumeEmbedded => Ok(Box::new(Embedded::new(size_bytes, 1)?)),
            Self::Memory => Ok(Box::new(Memory::new(size_bytes))),
        }
    }

    pub(crate) fn memory_bytes(self, size_bytes: u64) -> u64 {
        match self {
            Self::VolumeEmbedded => Embedded::pool_bytes(size_bytes),
            Self::Memory => size_bytes,
        }
    }

    /// Roughly what it writes in a second, for plans.
    pub(crate) fn bytes_per_s_expected(self) -> u64 {
        match self {
            Self::VolumeEmbedded => 4_000_000_000,
            Self::Memory => 10_000_000_000,
        }
    }
}
