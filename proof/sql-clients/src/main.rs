//! Fetches the clients that are not packages of Debian, before tests wait for them.
#![forbid(unsafe_code)]

use anyhow::Result;
use sql_clients::{jdbc, python};

fn main() -> Result<()> {
    python()?;
    jdbc()?;
    Ok(())
}
