//! Simulation of scarce memory: processes in a control group with a limit, which includes the
//! kernel's cache of their files.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::interruption::Interruption;

/// A version of control groups.
#[derive(Debug)]
struct Version {
    /// File that exists if this version controls memory.
    sign: &'static str,
    folder: &'static str,
    /// File with the limit of a group.
    limit: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version {
        sign: "/sys/fs/cgroup/cgroup.controllers",
        folder: "/sys/fs/cgroup",
        limit: "memory.max",
    },
    Version {
        sign: "/sys/fs/cgroup/memory/tasks",
        folder: "/sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
    },
];

/// File that enables controllers in child groups; version 2 only.
const COUNTED_BELOW: &str = "cgroup.subtree_control";

/// Time limit for the kernel to notice that the processes of a group have ended.
const END_TIME_MAX: Duration = Duration::from_secs(1);

/// A separate control group. Dropping it removes it; its processes must have ended before.
#[derive(Debug)]
pub struct MemoryLimit {
    group: PathBuf,
    version: &'static Version,
}

impl MemoryLimit {
    /// Fails if this process may not create such a group.
    pub fn of(bytes: u64) -> Result<Self> {
        let is_there = |it: &&Version| Path::new(it.sign).exists();
        let version = VERSIONS.iter().find(is_there);
        let version = version.context("the host has no control groups of memory")?;
        let name = format!("memlane-{}", std::process::id());
        Self::make(Path::new(version.folder).join(name), version, bytes)
    }

    /// Creates a child group. The parent has no process of its own then.
    pub fn inside(&self, bytes: u64) -> Result<Self> {
        let counted = self.group.join(COUNTED_BELOW);
        if counted.exists() {
            fs::write(&counted, "+memory")
                .with_context(|| format!("cannot write {}", counted.display()))?;
        }
        Self::make(self.group.join("inside"), self.version, bytes)
    }

    fn make(group: PathBuf, version: &'static Version, bytes: u64) -> Result<Self> {
        fs::create_dir(&group).with_context(|| format!("cannot make {}", group.display()))?;
        let limit = Self { group, version };
        limit.set(bytes)?;
        Ok(limit)
    }

    /// Changes the limit.
    pub fn set(&self, bytes: u64) -> Result<()> {
        let path = self.group.join(self.version.limit);
        fs::write(&path, bytes.to_string())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Folder of the group.
    pub fn group(&self) -> &Path {
        &self.group
    }

    /// Prefix of a command line that moves its process into the group.
    pub fn starter(&self) -> Vec<String> {
        let group = self.group.display();
        let join = format!("echo $$ > {group}/cgroup.procs && exec \"$0\" \"$@\"");
        ["sh", "-c", &join].map(str::to_owned).into()
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let _cleaning_up = Interruption::begin_to_clean_up();
        let deadline = Instant::now() + END_TIME_MAX;
        while fs::remove_dir(&self.group).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
    }
}
