//! Volumes as block devices of this host.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::daemon::Daemon;
use crate::tool::Tool;

/// Attaches the volume and returns its device, as printed by the command line.
pub fn attach(daemon: &Daemon, volume: &str) -> Result<PathBuf> {
    attach_with(daemon, volume, "")
}

/// Attaches the volume with these options.
pub fn attach_with(daemon: &Daemon, volume: &str, options: &str) -> Result<PathBuf> {
    let printed = daemon.memlane(&format!("attach {volume} {options}"))?;
    let device = PathBuf::from(printed.trim());
    ensure!(device.starts_with("/dev"), "attach printed {printed:?}, which is no device");
    Ok(device)
}

pub fn device_size_bytes(device: &Path) -> Result<u64> {
    let printed = Tool::new("blockdev --getsize64").arg(device).check()?;
    printed.trim().parse().with_context(|| format!("blockdev printed {printed:?}"))
}

/// Number of sectors written to the device since its creation.
pub fn written_sector_count(device: &Path) -> Result<u64> {
    let name = device.file_name().context("a device has a name")?.to_string_lossy().into_owned();
    let path = format!("/sys/block/{name}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let field = text.split_whitespace().nth(6).with_context(|| format!("{path} is too short"))?;
    field.parse().with_context(|| format!("{path} holds {field:?}"))
}
