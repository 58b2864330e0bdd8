//! Clients for Python, in environments of their own.

use std::path::{Path, PathBuf};

use anyhow::Result;
use system::Tool;

use crate::fetched::{Recipe, SOURCES};

const REQUIREMENTS: &str = "python/requirements.txt";

/// A Python that has what `python/requirements.txt` of a crate names.
pub struct PythonClient {
    python: PathBuf,
    script: PathBuf,
}

impl PythonClient {
    pub fn fetched() -> Result<Self> {
        Self::of_crate(SOURCES)
    }

    /// With the requirements and scenarios of the crate in this folder.
    pub fn of_crate(sources: &str) -> Result<Self> {
        let recipe = Recipe {
            sources,
            name: "python",
            origin: "the Python package index",
            made_of: &[REQUIREMENTS],
        };
        let folder = recipe.folder(|folder| {
            Tool::new("python3 -m venv").arg(folder).check()?;
            Tool::new("env")
                .arg(folder.join("bin/python"))
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .args(["--require-hashes", "--only-binary", ":all:", "--requirement"])
                .arg(Path::new(sources).join(REQUIREMENTS))
                .check()?;
            Ok(())
        })?;
        let script = Path::new(sources).join("python/scenarios.py");
        Ok(Self { python: folder.join("bin/python"), script })
    }

    /// Runs `scenario` of the scripts in `python/`.
    pub fn scenario(&self, scenario: &str) -> Tool {
        Tool::new("env PYTHONDONTWRITEBYTECODE=1").arg(&self.python).arg(&self.script).arg(scenario)
    }
}
