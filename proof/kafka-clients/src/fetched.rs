//! Folders of files from registries: complete and as locked, or missing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folder of this crate, with the sources of the client programs.
pub(crate) const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

/// Something to fetch and build.
pub struct Recipe<'a> {
    /// Folder of the crate that needs it. The result is in `target/` under the crate's name.
    pub sources: &'a str,
    pub name: &'a str,
    /// Origin, for the progress message.
    pub origin: &'a str,
    /// Files of the crate. When one of them changes, everything is fetched again.
    pub made_of: &'a [&'a str],
}

impl Recipe<'_> {
    /// Returns the folder filled by `fill`, now or in an earlier run.
    pub fn folder(&self, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let sources = Path::new(self.sources);
        let crate_name = sources.file_name().context("a crate has a folder with a name")?;
        let kept_in = sources.join("../../target").join(crate_name);
        fs::create_dir_all(&kept_in)
            .with_context(|| format!("cannot create {}", kept_in.display()))?;
        let kept_in = fs::canonicalize(kept_in).context("the folder was just made")?;
        // Other tests may use it concurrently.
        let lock_path = kept_in.join(format!("{}.lock", self.name));
        let lock = File::create(lock_path).context("cannot create a lock file")?;
        lock.lock().with_context(|| format!("cannot lock the folder of {}", self.name))?;
        let folder = kept_in.join(self.name);
        let recipe = self.text()?;
        if fs::read(folder.join("recipe")).is_ok_and(|found| found == recipe) {
            return Ok(folder);
        }
        eprintln!("  fetching {} from {}", self.name, self.origin);
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        fill(&folder).with_context(|| format!("cannot fetch {} ({})", self.name, self.origin))?;
        fs::write(folder.join("recipe"), recipe).context("cannot note what was fetched")?;
        Ok(folder)
    }

    fn text(&self) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        for name in self.made_of {
            let path = Path::new(self.sources).join(name);
            text.extend(fs::read(&path).with_context(|| format!("cannot read {name}"))?);
        }
        Ok(text)
    }
}
