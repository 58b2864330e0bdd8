//! Clients installed from package registries.

use anyhow::Result;
use kafka_clients::{JavaClient, PythonClient};

const SOURCES: &str = env!("CARGO_MANIFEST_DIR");
const JAVA_PROGRAMS: &[&str] = &["java/Scenarios.java"];

/// Python client with psycopg and asyncpg, and the scenarios of `python/`.
pub fn python() -> Result<PythonClient> {
    PythonClient::of_crate(SOURCES)
}

/// Java client with PostgreSQL's JDBC driver and the program of `java/`.
pub fn jdbc() -> Result<JavaClient> {
    JavaClient::of_crate(SOURCES, JAVA_PROGRAMS)
}
