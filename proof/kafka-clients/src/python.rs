//! confluent-kafka, which is librdkafka for Python, in an environment of its own.

use std::path::{Path, PathBuf};

use anyhow::Result;
use system::Tool;

use crate::fetched::{Recipe, SOURCES};

const REQUIREMENTS: &str = "python/requirements.txt";

/// A Python that has confluent-kafka.
pub struct PythonClient {
    python: PathBuf,
}

impl PythonClient {
    pub fn fetched() -> Result<Self> {
        let recipe =
            Recipe { name: "python", origin: "the Python package index", made_of: &[REQUIREMENTS] };
        let folder = recipe.folder(|folder| {
            Tool::new("python3 -m venv").arg(folder).check()?;
            Tool::new("env")
                .arg(folder.join("bin/python"))
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .args(["--require-hashes", "--only-binary", ":all:", "--requirement"])
                .arg(Path::new(SOURCES).join(REQUIREMENTS))
                .check()?;
            Ok(())
        })?;
        Ok(Self { python: folder.join("bin/python") })
    }

    /// Runs `scenario` of the scripts in `python/`.
    pub fn scenario(&self, scenario: &str) -> Tool {
        let script = Path::new(SOURCES).join("python/scenarios.py");
        Tool::new("env PYTHONDONTWRITEBYTECODE=1").arg(&self.python).arg(script).arg(scenario)
    }
}
