//! Clients for Python, in environments of their own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use system::Tool;

use crate::fetched::{Recipe, SOURCES};

const REQUIREMENTS: &str = "python/requirements.txt";

/// Makes an environment of Python in a folder: wheels of the package index, by their hashes.
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

/// The folder of an environment in which its modules are, for `PYTHONPATH`.
pub fn modules_in(environment: &Path) -> Result<PathBuf> {
    let mut versions = fs::read_dir(environment.join("lib")).context("it is no environment")?;
    let version = versions.next().context("the environment is of no version")??;
    Ok(version.path().join("site-packages"))
}

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
        let folder = recipe
            .folder(|folder| make_environment(folder, &Path::new(sources).join(REQUIREMENTS)))?;
        let script = Path::new(sources).join("python/scenarios.py");
        Ok(Self { python: folder.join("bin/python"), script })
    }

    /// Runs `scenario` of the scripts in `python/`.
    pub fn scenario(&self, scenario: &str) -> Tool {
        self.program(&self.script).arg(scenario)
    }

    /// Runs the script at this path.
    pub fn program(&self, script: &Path) -> Tool {
        Tool::new("env PYTHONDONTWRITEBYTECODE=1").arg(&self.python).arg(script)
    }
}
