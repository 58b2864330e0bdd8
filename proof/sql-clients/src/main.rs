//! Downloads the clients that are not Debian packages, so that tests do not wait for them.
#![forbid(unsafe_code)]

use anyhow::Result;
use sql_clients::{jdbc, python};

fn main() -> Result<()> {
    python()?;
    jdbc()?;
    Ok(())
}
