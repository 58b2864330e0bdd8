//! Processor time of a group of processes with all descendants.
//!
//! A control group counts exactly, including running processes. Without one, all children of this
//! process are counted together after they have ended and were waited for, and only one such group
//! can exist at a time. The groups impose no limits.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use system::processor_seconds_of_children;

use super::control_group::{self, Tree};

/// Accounting method, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuBackend {
    /// `cpuacct.usage`, in nanoseconds.
    CgroupV1,
    /// `usage_usec` of `cpu.stat`.
    CgroupV2,
    /// Children that were waited for, in ticks of 10 ms.
    Wait,
}

impl CpuBackend {
    pub const ALL: [Self; 3] = [Self::CgroupV1, Self::CgroupV2, Self::Wait];

    fn tree(self) -> Option<Tree> {
        match self {
            Self::CgroupV1 => Some(Tree::V1("cpuacct")),
            Self::CgroupV2 => Some(Tree::V2),
            Self::Wait => None,
        }
    }

    /// Returns the seconds used by all processes of the machine, or `None` if this method does not
    /// provide them.
    pub fn machine_seconds(self) -> Option<f64> {
        self.seconds_of(&self.tree()?.root()?).ok()
    }

    fn seconds_of(self, folder: &Path) -> Result<f64> {
        let (name, unit) = match self {
            Self::CgroupV1 => ("cpuacct.usage", 1e9),
            Self::CgroupV2 => ("cpu.stat", 1e6),
            Self::Wait => bail!("a process that is waited for has no folder"),
        };
        let path = folder.join(name);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let figure = match self {
            Self::CgroupV2 => text.lines().find_map(|line| line.strip_prefix("usage_usec ")),
            _ => Some(text.trim()),
        };
        let count = figure.and_then(|figure| figure.trim().parse::<f64>().ok());
        let count = count.with_context(|| format!("{} holds {text:?}", path.display()))?;
        Ok(count / unit)
    }
}

impl fmt::Display for CpuBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CgroupV1 => "cgroup v1 cpuacct",
            Self::CgroupV2 => "cgroup v2 cpu.stat",
            Self::Wait => "wait4",
        })
    }
}

/// Processes that are counted together. The group is removed when dropped.
#[derive(Debug)]
pub struct CpuGroup {
    backend: CpuBackend,
    folder: Option<PathBuf>,
    children_before_s: f64,
}

impl CpuGroup {
    /// Creates a group with the best available method.
    pub fn new(name: &str) -> Result<Self> {
        let made = CpuBackend::ALL.iter().find_map(|backend| Self::by(*backend, name).ok());
        made.context(
            "cannot count CPU time: neither control groups nor /proc/self/stat can be used",
        )
    }

    /// Creates a group with this method. Fails if it is unavailable here.
    pub fn by(backend: CpuBackend, name: &str) -> Result<Self> {
        let folder = match backend {
            CpuBackend::Wait => None,
            CpuBackend::CgroupV1 | CpuBackend::CgroupV2 => {
                let own = backend.tree().and_then(Tree::own);
                let own = own.with_context(|| format!("there is no {backend}"))?;
                let folder = own.join(control_group::folder_name(name));
                fs::create_dir(&folder).with_context(|| {
                    format!("cannot create the control group {}", folder.display())
                })?;
                Some(folder)
            }
        };
        let children_before_s = processor_seconds_of_children()?;
        let group = Self { backend, folder, children_before_s };
        // Detects unreadable counters early.
        group.seconds()?;
        Ok(group)
    }

    pub fn backend(&self) -> CpuBackend {
        self.backend
    }

    /// Returns the command prefix that includes a program and its children.
    pub fn starter(&self) -> Vec<String> {
        self.folder.as_deref().map(control_group::starter).unwrap_or_default()
    }

    /// Returns the group's processor time since its creation.
    pub fn seconds(&self) -> Result<f64> {
        match &self.folder {
            Some(folder) => self.backend.seconds_of(folder),
            None => Ok(processor_seconds_of_children()? - self.children_before_s),
        }
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            control_group::remove(folder);
        }
    }
}
