//! Python clients, in separate environments.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use system::Tool;

use crate::fetched::{Recipe, SOURCES};

const REQUIREMENTS: &str = "python/requirements.txt";

/// Creates a Python environment in a folder, from wheels of the package index with hashes.
pub fn make_environment(folder: &Path, requirements: &Path) -> Result<()> {
    Tool::new("/usr/bin/python3 -m venv").arg(folder).check()?;
    Tool::new("env")
        .arg(folder.join("bin/python"))
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .args(["--require-hashes", "--only-binary", ":all:", "--requirement"])
        .arg(requirements)
        .check()?;
    Ok(())
}

/// Returns the module folder of an environment, for `PYTHONPATH`.
pub fn modules_in(environment: &Path) -> Result<PathBuf> {
    let mut versions = fs::read_dir(environment.join("lib")).context("it is no environment")?;
    let version = versions.next().context("the environment is of no version")??;
    Ok(version.path().join("site-packages"))
}

/// Python with the packages in `python/requirements.txt` of a crate.
pub struct PythonClient {
    python: PathBuf,
    script: PathBuf,
}

impl PythonClient {
    pub fn fetched() -> Result<Self> {
        Self::of_crate(SOURCES)
    }

    /// Creates a client with the requirements and scenarios of the crate in this folder.
    pub fn of_crate(sources: &str) -> Result<Self> {
        let recipe = Recipe {
            sources,
            name: "python",
            origin: "the Python package index",
            made_of: &[REQUIREMENTS],
        };
        let folder = recipe
            .folder(|folder| make_environment(folder, &Path::new(sources).join(REQUIREMENTS)))?;
        let script = Path::new(sources).join("python/scenarios.py");
        Ok(Self { python: folder.join("bin/python"), script })
    }

    /// Returns a command that runs `scenario` of the scripts in `python/`.
    pub fn scenario(&self, scenario: &str) -> Tool {
        self.program(&self.script).arg(scenario)
    }

    /// Returns a command that runs the script at this path.
    pub fn program(&self, script: &Path) -> Tool {
        Tool::new("env PYTHONDONTWRITEBYTECODE=1").arg(&self.python).arg(script)
    }
}
