//! Where an application works, and how its programs are started.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use system::Tool;

/// A folder on the target for one run of an application.
pub(super) struct Site {
    pub(super) folder: PathBuf,
    pub(super) seed: u64,
    /// About as much data as the application shall work on.
    pub(super) bytes: u64,
    /// For load that goes on for a time.
    pub(super) seconds: u64,
    pub(super) cores: u32,
    /// Words that a counted program is put behind.
    pub(super) starter: Vec<String>,
    pub(super) time_limit: Duration,
}

impl Site {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    /// A program whose processor time counts, on the cores of the run.
    pub(super) fn program(&self, words: &str) -> Tool {
        let tool = match self.starter.split_first() {
            Some((first, rest)) => Tool::new(first).args(rest).args(words.split_whitespace()),
            None => Tool::new(words),
        };
        self.limited(tool)
    }

    /// A program that prepares or verifies.
    pub(super) fn tool(&self, words: &str) -> Tool {
        self.limited(Tool::new(words))
    }

    fn limited(&self, tool: Tool) -> Tool {
        tool.current_dir(&self.folder)
            .env("BORG_BASE_DIR", &self.text("borg-base"))
            .env("LC_ALL", "C")
            .time_limit(self.time_limit)
    }

    /// Everything that was written reaches the target.
    pub(super) fn write_back(&self) -> Result<()> {
        self.program("sync -f .").check()?;
        Ok(())
    }
}

/// Reads come from the target afterwards, not from the page cache.
pub(super) fn drop_page_cache(folder: &Path) -> Result<()> {
    Tool::new("sync -f").arg(folder).check()?;
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("cannot empty the page cache")
}
