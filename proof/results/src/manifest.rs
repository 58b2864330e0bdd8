//! What was measured where, with what, and how.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The form's name and major version. A reader refuses other majors.
pub const SCHEMA: &str = "bench/1";

/// The head of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`SCHEMA`].
    pub schema: String,
    /// Different for each run.
    pub id: String,
    pub started_unix_ms: u64,
    pub tool: Tool,
    /// The machine, by property.
    pub host: BTreeMap<String, Value>,
    /// What the machine lets a program measure, by name; text says why it does not.
    pub probes: BTreeMap<String, Value>,
    pub profile: String,
    pub seed: u64,
    /// The suites and what each was told. A resumed run must be told the same.
    pub configuration: Value,
    pub command_line: Vec<String>,
}

/// The program that measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    pub version: String,
    /// The revision of the source, where it is known.
    pub commit: Option<String>,
}

impl Manifest {
    /// Reads a manifest, and refuses a form of another major version.
    pub fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text).context("the manifest is no JSON")?;
        let schema = value.get("schema").and_then(Value::as_str).unwrap_or("none");
        if schema != SCHEMA {
            bail!("the run is recorded in the form {schema:?}; this program reads {SCHEMA:?}");
        }
        serde_json::from_value(value).context("the manifest does not have the form it names")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_major_version_is_refused_by_name() {
        let error = Manifest::parse(r#"{"schema": "bench/2", "new": 1}"#).expect_err("is newer");
        assert!(error.to_string().contains("bench/2"), "{error}");
    }
}
