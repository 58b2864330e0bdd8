//! A guest with the kernel's ublk driver, and its daemon.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use guest::{Guest, GuestDaemon, GuestOptions, Image, ImageContents};

pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(240);

pub(crate) const DAEMON_FLAGS: &str = "--pool-size 256MiB --journal-max-bytes 64MiB";

/// Starts a guest, without `memlaned`.
pub(crate) fn boot() -> Result<Guest> {
    let image = Image::build(ImageContents {
        products: &["memlaned", "memlane"],
        programs: &["fio", "mkfs.ext4", "e2fsck"],
        modules: &["ublk_drv"],
    })?;
    // Journal and images are in memory, too.
    let options = GuestOptions { memory_mib: 2048, ..GuestOptions::small(Vec::new()) };
    Guest::boot(&image, &options)
}

/// Creates a volume and attaches it as ublk. Returns the device.
pub(crate) fn attached(daemon: &GuestDaemon<'_>, name: &str, flags: &str) -> Result<String> {
    daemon.memlane(&format!("volume create {name} {flags}"))?;
    let device = daemon.memlane(&format!("attach {name} --as ublk"))?;
    let device = device.trim().to_owned();
    ensure!(device.starts_with("/dev/ublkb"), "{name} is attached as {device}");
    Ok(device)
}

/// Returns the output of `memlane volume show`.
pub(crate) fn shown(daemon: &GuestDaemon<'_>, name: &str) -> Result<api::Volume> {
    let text = daemon.memlane(&format!("--json volume show {name}"))?;
    serde_json::from_str(&text).with_context(|| format!("memlane volume show printed {text}"))
}

/// Runs a line that must fail, and returns its standard error.
pub(crate) fn refused(guest: &Guest, line: &str) -> Result<String> {
    let output = guest.run(line, TIME_LIMIT)?;
    ensure!(output.exit_code != Some(0), "{line} was not refused: {}", output.stdout);
    Ok(output.stderr)
}

/// Checks that the kernel has reported no failed request.
pub(crate) fn no_request_failed(guest: &Guest) -> Result<()> {
    let said = guest.run("dmesg | grep -E 'I/O error|Buffer I/O|WARNING|BUG'", TIME_LIMIT)?;
    ensure!(said.stdout.is_empty(), "the guest's kernel said: {}", said.stdout);
    Ok(())
}
