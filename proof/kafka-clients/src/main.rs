//! Fetches the clients that are not Debian packages, before tests need them.
#![forbid(unsafe_code)]

use anyhow::Result;
use kafka_clients::{GoClient, JavaClient, PythonClient};

fn main() -> Result<()> {
    PythonClient::fetched()?;
    JavaClient::fetched()?;
    GoClient::fetched()?;
    Ok(())
}
