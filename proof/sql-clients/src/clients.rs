//! Clients that come from registries.

use anyhow::Result;
use kafka_clients::{JavaClient, PythonClient};

const SOURCES: &str = env!("CARGO_MANIFEST_DIR");
const JAVA_PROGRAMS: &[&str] = &["java/Scenarios.java"];

/// psycopg and asyncpg, with the scenarios of `python/`.
pub fn python() -> Result<PythonClient> {
    PythonClient::of_crate(SOURCES)
}

/// PostgreSQL's driver for JDBC, with the program of `java/`.
pub fn jdbc() -> Result<JavaClient> {
    JavaClient::of_crate(SOURCES, JAVA_PROGRAMS)
}
