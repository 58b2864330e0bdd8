//! Memory limit for a group of processes: allocated and shared memory, and the page cache of their
//! files.
//!
//! Pages are charged to the group that first touches them. Files for a limited program must
//! therefore be created by programs in its group. Files on tmpfs count as memory of the group.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::control_group::{self, Tree};

const CONTROLLER: &str = "memory";

/// Limiting mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBackend {
    CgroupV1,
    CgroupV2,
}

impl MemoryBackend {
    const ALL: [Self; 2] = [Self::CgroupV2, Self::CgroupV1];

    fn limit_file(self) -> &'static str {
        match self {
            Self::CgroupV1 => "memory.limit_in_bytes",
            Self::CgroupV2 => "memory.max",
        }
    }

    /// Returns the control file that disables swap when 0.
    fn swap_file(self) -> &'static str {
        match self {
            // A combined limit of memory and swap would be reached first, and is not counted.
            Self::CgroupV1 => "memory.swappiness",
            Self::CgroupV2 => "memory.swap.max",
        }
    }

    /// Returns possible parent groups, best first. With version 2 the group of this process cannot
    /// have children with limits, but an ancestor may.
    fn parents(self) -> Vec<PathBuf> {
        let tree = match self {
            Self::CgroupV1 => Tree::V1(CONTROLLER),
            Self::CgroupV2 => Tree::V2,
        };
        let (Some(root), Some(own)) = (tree.root(), tree.own()) else { return Vec::new() };
        own.ancestors().take_while(|it| it.starts_with(&root)).map(Path::to_owned).collect()
    }
}

impl fmt::Display for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CgroupV1 => "cgroup v1 memory.limit_in_bytes",
            Self::CgroupV2 => "cgroup v2 memory.max",
        })
    }
}

/// Processes that share a limit. The group is removed when dropped.
#[derive(Debug)]
pub struct MemoryGroup {
    backend: MemoryBackend,
    folder: PathBuf,
}

impl MemoryGroup {
    /// Creates a group with the best available mechanism. Existing groups are not changed.
    pub fn new(name: &str, limit_bytes: u64) -> Result<Self> {
        let mut reasons = Vec::new();
        for backend in MemoryBackend::ALL {
            for parent in backend.parents() {
                match Self::make(backend, &parent, (name, limit_bytes)) {
                    Ok(group) => return Ok(group),
                    Err(error) => reasons.push(format!("{error:#}")),
                }
            }
        }
        if reasons.is_empty() {
            bail!("memory cannot be limited: there are no control groups for memory");
        }
        bail!("memory cannot be limited: {}", reasons.join("; "))
    }

    fn make(
        backend: MemoryBackend,
        parent: &Path,
        (name, limit_bytes): (&str, u64),
    ) -> Result<Self> {
        let folder = parent.join(control_group::folder_name(name));
        fs::create_dir(&folder)
            .with_context(|| format!("cannot create the control group {}", folder.display()))?;
        let group = Self { backend, folder };
        let limit = group.folder.join(backend.limit_file());
        // Without the controller this file does not exist and cannot be created.
        fs::OpenOptions::new()
            .write(true)
            .open(&limit)
            .and_then(|mut file| {
                std::io::Write::write_all(&mut file, limit_bytes.to_string().as_bytes())
            })
            .with_context(|| format!("cannot write {}", limit.display()))?;
        let swap = group.folder.join(backend.swap_file());
        if swap.exists() {
            fs::write(&swap, "0").with_context(|| format!("cannot write {}", swap.display()))?;
        }
        Ok(group)
    }

    pub fn backend(&self) -> MemoryBackend {
        self.backend
    }

    /// Returns the command prefix that limits a program and its children.
    pub fn starter(&self) -> Vec<String> {
        control_group::starter(&self.folder)
    }

    /// Returns the group's current memory, including page cache.
    pub fn used_bytes(&self) -> Result<u64> {
        match self.backend {
            MemoryBackend::CgroupV1 => self.number("memory.usage_in_bytes"),
            MemoryBackend::CgroupV2 => self.number("memory.current"),
        }
    }

    /// Returns the number of times that the limit was reached and memory was reclaimed.
    pub fn limit_hits(&self) -> Result<u64> {
        match self.backend {
            MemoryBackend::CgroupV1 => self.number("memory.failcnt"),
            MemoryBackend::CgroupV2 => self.event("max"),
        }
    }

    /// Returns the number of processes killed because no memory could be reclaimed.
    pub fn kills(&self) -> Result<u64> {
        let name = match self.backend {
            MemoryBackend::CgroupV1 => "memory.oom_control",
            MemoryBackend::CgroupV2 => "memory.events",
        };
        // Kernels before 4.13 do not count them.
        Ok(field(&self.text(name)?, "oom_kill").unwrap_or(0))
    }

    fn event(&self, name: &str) -> Result<u64> {
        let text = self.text("memory.events")?;
        field(&text, name).with_context(|| format!("memory.events holds {text:?}"))
    }

    fn number(&self, name: &str) -> Result<u64> {
        let text = self.text(name)?;
        text.trim().parse().with_context(|| format!("{name} holds {text:?}"))
    }

    fn text(&self, name: &str) -> Result<String> {
        let path = self.folder.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        control_group::remove(&self.folder);
    }
}

/// Returns the number after a name, with one pair per line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use system::Tool;

    use super::*;

    const LIMIT_BYTES: u64 = 64 << 20;

    #[test]
    fn events_are_read_by_their_whole_name() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(field(text, "oom_kill"), Some(3));
        assert_eq!(field("low 0\nmax 17\noom 0\n", "max"), Some(17));
        assert_eq!(field("low 0\n", "max"), None);
    }

    #[test]
    fn pages_of_files_stay_below_the_limit() {
        let group = match MemoryGroup::new("limit-test", LIMIT_BYTES) {
            Ok(group) => group,
            Err(error) => {
                eprintln!("skipped: {error:#}");
                return;
            }
        };
        let folder = tempfile::tempdir_in("/var/tmp").expect("there is room for a folder");
        let file = folder.path().join("data");
        let starter = group.starter();
        let mut tool = Tool::new(&starter[0]).args(&starter[1..]);
        tool = tool.args(["dd", "if=/dev/zero", "bs=1M", "count=192", "status=none"]);
        tool.arg(format!("of={}", file.display())).check().expect("it is written");
        assert!(group.used_bytes().expect("the kernel tells") <= LIMIT_BYTES);
        assert!(group.limit_hits().expect("the kernel tells") > 0);
        assert_eq!(group.kills().expect("the kernel tells"), 0);
        let place = group.folder.clone();
        drop(group);
        assert!(!place.exists(), "{} is left", place.display());
    }
}
