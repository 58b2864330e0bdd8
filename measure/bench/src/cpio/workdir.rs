//! Where an application works, and how its programs are started.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use system::Tool;

use crate::targets::{Access, Kind, Spec};

/// Debian's own, for which its modules are packaged.
pub(super) const PYTHON: &str = "/usr/bin/python3";

/// Where an application's data lies.
#[derive(Clone, Debug)]
pub(super) enum DataLocation {
    /// In files of the working folder.
    Folder,
    /// All over a volume, which is reached in this way.
    Whole(Access),
}

/// Files of one run of an application, and its folder.
pub(super) struct Workdir {
    pub(super) folder: PathBuf,
    pub(super) location: DataLocation,
    pub(super) seed: u64,
    /// About as much data as the application shall work on.
    pub(super) bytes: u64,
    /// For load that goes on for a time.
    pub(super) seconds: u64,
    pub(super) cores: u32,
    /// Words that a counted program is put behind.
    pub(super) starter: Vec<String>,
    /// The same for a program that makes load beside a counted one.
    pub(super) driver: Vec<String>,
    /// Words that every program is put behind to reach the target.
    pub(super) way: Vec<String>,
    pub(super) time_limit: Duration,
}

impl Workdir {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    /// A program whose processor time counts, on the cores of the run.
    pub(super) fn program(&self, words: &str) -> Tool {
        let starter = self.starter.iter().chain(&self.way);
        self.limited(Tool::new("env").args(starter).args(words.split_whitespace()))
    }

    /// A program that prepares or verifies.
    pub(super) fn tool(&self, words: &str) -> Tool {
        self.limited(Tool::new("env").args(&self.way).args(words.split_whitespace()))
    }

    /// A program in Python that is carried here, counted.
    pub(super) fn python(&self, text: &str, words: &[&str]) -> Tool {
        self.program(PYTHON).arg("-c").arg(text).args(words)
    }

    /// The same, to prepare or verify.
    pub(super) fn python_tool(&self, text: &str, words: &[&str]) -> Tool {
        self.tool(PYTHON).arg("-c").arg(text).args(words)
    }

    fn limited(&self, tool: Tool) -> Tool {
        tool.current_dir(&self.folder)
            .env("BORG_BASE_DIR", &self.text("borg-base"))
            .env("LC_ALL", "C")
            .env("SQLITE_TMPDIR", &self.folder.to_string_lossy())
            .env("OMP_NUM_THREADS", &self.cores.to_string())
            .time_limit(self.time_limit)
    }

    /// Everything that was written reaches the target.
    pub(super) fn write_back(&self) -> Result<()> {
        if let DataLocation::Folder = self.location {
            self.program("sync -f .").check()?;
        }
        Ok(())
    }
}

/// Returns whether the target is reached in a way that carries no file system.
pub(super) fn is_whole(spec: &Spec) -> bool {
    matches!(spec.kind, Kind::VolumeRun | Kind::VolumeNbd | Kind::VolumeFile)
}

/// Reads come from the target afterwards, not from the page cache.
pub(super) fn drop_page_cache(folder: &Path) -> Result<()> {
    Tool::new("sync -f").arg(folder).check()?;
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("cannot empty the page cache")
}
