//! The host on which the program runs.

use std::fs;

use anyhow::Context;

const NAME_PATH: &str = "/proc/sys/kernel/hostname";

/// Host name according to the kernel.
///
/// # Errors
/// `/proc` cannot be read.
pub fn host_name() -> anyhow::Result<String> {
    let name = fs::read_to_string(NAME_PATH).with_context(|| format!("cannot read {NAME_PATH}"))?;
    Ok(name.trim().to_owned())
}
