//! Environment of a run: subject, machine, tools.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name and major version of the format. Readers reject other major versions.
pub const SCHEMA: &str = "bench/1";

/// The head of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// [`SCHEMA`].
    pub schema: String,
    /// Different for each run.
    pub id: String,
    pub started_unix_ms: u64,
    pub tool: Tool,
    pub host: Host,
    /// Measurements that the machine lets a program make: `pmu`, `rapl`, `cgroup`.
    pub probes: BTreeMap<String, Probe>,
    pub profile: String,
    /// Seed of orders, places and contents.
    pub seed: u64,
    /// The suites and what each was told. A resumed run must be told the same.
    pub configuration: Value,
    pub command_line: Vec<String>,
}

/// The program that measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    pub version: String,
    /// The revision of the source, where it is known.
    pub commit: Option<String>,
}

/// The machine. What it does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    pub cpu: String,
    pub cores: u64,
    /// Frequency of the time stamp counter: the "reference cycles" of figures for each I/O.
    pub tsc_hz: Option<u64>,
    pub last_level_cache_bytes: Option<u64>,
    pub memory_bytes: u64,
    pub numa_nodes: u64,
    pub kernel: String,
    /// `none` on bare metal.
    pub virtualisation: Option<String>,
    /// By name of the weakness, in the kernel's words.
    pub mitigations: BTreeMap<String, String>,
    pub frequency_governor: Option<String>,
    pub idle_driver: Option<String>,
    pub transparent_huge_pages: Option<String>,
    /// Over 1, 5 and 15 minutes when the run began.
    pub load_average: Vec<f64>,
    /// Share of the processor time since boot that went to other guests, 0 to 1.
    pub steal_share: Option<f64>,
}

/// Possibility of a measurement, and what was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    pub is_available: bool,
    pub detail: String,
}

impl Manifest {
    /// Parses a manifest. Rejects other major versions of the format.
    pub fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text).context("manifest.json is not valid JSON")?;
        let schema = value.get("schema").and_then(Value::as_str).unwrap_or("none");
        if schema != SCHEMA {
            bail!("unsupported schema {schema:?} of the run; this program reads {SCHEMA:?}");
        }
        serde_json::from_value(value).context("manifest.json does not match its schema")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Creates a minimal manifest.
    pub(crate) fn manifest() -> Manifest {
        Manifest {
            schema: SCHEMA.to_owned(),
            id: "a".to_owned(),
            started_unix_ms: 1,
            tool: Tool { version: "1".to_owned(), commit: None },
            host: Host::default(),
            probes: BTreeMap::new(),
            profile: "quick".to_owned(),
            seed: 1,
            configuration: serde_json::json!({}),
            command_line: Vec::new(),
        }
    }

    #[test]
    fn another_major_version_is_refused_by_name() {
        let error = Manifest::parse(r#"{"schema": "bench/2", "new": 1}"#).expect_err("is newer");
        assert!(error.to_string().contains("bench/2"), "{error}");
    }
}
