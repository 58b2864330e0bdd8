//! Folders of what came from registries: there whole and as its lock says, or not at all.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The folder of this crate, with the sources of the client programs.
pub(crate) const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

/// Something to fetch and build.
pub struct Recipe<'a> {
    /// The folder of the crate that needs it; what was fetched lies in `target/` under its name.
    pub sources: &'a str,
    pub name: &'a str,
    /// Where it comes from, for the line that says what takes so long.
    pub origin: &'a str,
    /// Files of the crate. When one of them changes, all is fetched anew.
    pub made_of: &'a [&'a str],
}

impl Recipe<'_> {
    /// The folder that `fill` filled, now or in an earlier run.
    pub fn folder(&self, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let sources = Path::new(self.sources);
        let crate_name = sources.file_name().context("a crate has a folder with a name")?;
        let kept_in = sources.join("../../target").join(crate_name);
        fs::create_dir_all(&kept_in)
            .with_context(|| format!("cannot create {}", kept_in.display()))?;
        let kept_in = fs::canonicalize(kept_in).context("the folder was just made")?;
        // Other tests may look for it at the same time.
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
