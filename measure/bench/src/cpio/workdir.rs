//! Working directory of an application, and how its programs are started.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use system::Tool;

use crate::targets::{Access, Kind, Spec};

/// Debian's interpreter, for which the modules are packaged.
pub(super) const PYTHON: &str = "/usr/bin/python3";

/// Location of an application's data.
#[derive(Clone, Debug)]
pub(super) enum DataLocation {
    /// In files of the working folder.
    Folder,
    /// On a whole volume, accessed in this way.
    Whole(Access),
}

/// Files and parameters of one run of an application.
pub(super) struct Workdir {
    pub(super) folder: PathBuf,
    pub(super) location: DataLocation,
    pub(super) seed: u64,
    /// Approximate amount of data to work on.
    pub(super) bytes: u64,
    /// Duration of time-based load.
    pub(super) seconds: u64,
    pub(super) cores: u32,
    /// Command prefix of measured programs.
    pub(super) starter: Vec<String>,
    /// Command prefix of load drivers.
    pub(super) driver: Vec<String>,
    /// Command prefix of all programs for access to the target.
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

    /// Creates a command whose processor time is measured, on the cores of the run.
    pub(super) fn program(&self, words: &str) -> Tool {
        let starter = self.starter.iter().chain(&self.way);
        self.limited(Tool::new("env").args(starter).args(words.split_whitespace()))
    }

    /// Creates a command for preparation or verification.
    pub(super) fn tool(&self, words: &str) -> Tool {
        self.limited(Tool::new("env").args(&self.way).args(words.split_whitespace()))
    }

    /// Creates a measured command for an embedded Python program.
    pub(super) fn python(&self, text: &str, words: &[&str]) -> Tool {
        self.program(PYTHON).arg("-c").arg(text).args(words)
    }

    /// Creates an embedded Python program for preparation or verification.
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

    /// Flushes all writes to the target.
    pub(super) fn write_back(&self) -> Result<()> {
        if let DataLocation::Folder = self.location {
            self.program("sync -f .").check()?;
        }
        Ok(())
    }
}

/// Returns whether the target is accessed in a way that cannot have a file system.
pub(super) fn is_whole(spec: &Spec) -> bool {
    matches!(spec.kind, Kind::VolumeRun | Kind::VolumeNbd | Kind::VolumeFile)
}

/// Drops the page cache, so that later reads access the target.
pub(super) fn drop_page_cache(folder: &Path) -> Result<()> {
    Tool::new("sync -f").arg(folder).check()?;
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("cannot empty the page cache")
}
