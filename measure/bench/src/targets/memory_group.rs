//! A limit on the memory of a group of processes: what they allocate and share, and the pages of
//! files that they read and write.
//!
//! Pages count for the group that touched them first. So files that a limited program is to read
//! must be made by programs of its group too, and files on tmpfs are memory of the group.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::control_group::{self, Tree};

const CONTROLLER: &str = "memory";

/// Mechanism that limits.
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

    /// What keeps the group from swap when it is 0.
    fn swap_file(self) -> &'static str {
        match self {
            // A limit of memory with swap would be met first, and that is not counted.
            Self::CgroupV1 => "memory.swappiness",
            Self::CgroupV2 => "memory.swap.max",
        }
    }

    /// Groups in which one may be made, best first. With version 2 the group of this process can
    /// have none with a limit, but one above it may.
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

/// Processes that share a limit. Dropping it takes it down.
#[derive(Debug)]
pub struct MemoryGroup {
    backend: MemoryBackend,
    folder: PathBuf,
}

impl MemoryGroup {
    /// A group of the best kind that can be made here. Nothing that is there is changed.
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
            .with_context(|| format!("cannot make the group {}", folder.display()))?;
        let group = Self { backend, folder };
        let limit = group.folder.join(backend.limit_file());
        // A group without the controller has no such file, and making one there fails.
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

    /// The words that a command line is put behind so that the program and its children are
    /// limited.
    pub fn starter(&self) -> Vec<String> {
        control_group::starter(&self.folder)
    }

    /// Memory that the group uses now, pages of files included.
    pub fn used_bytes(&self) -> Result<u64> {
        match self.backend {
            MemoryBackend::CgroupV1 => self.number("memory.usage_in_bytes"),
            MemoryBackend::CgroupV2 => self.number("memory.current"),
        }
    }

    /// Number of times that the limit was met, and something had to be given back.
    pub fn limit_hits(&self) -> Result<u64> {
        match self.backend {
            MemoryBackend::CgroupV1 => self.number("memory.failcnt"),
            MemoryBackend::CgroupV2 => self.event("max"),
        }
    }

    /// Processes that were killed because nothing could be given back.
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

/// The number behind a name, each pair on a line of its own.
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
