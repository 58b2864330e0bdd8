//! Debian packages unpacked into folders, and never installed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::tool::Tool;

/// Runs an operation that needs apt's package lists. If it fails, the lists may be old or missing,
/// so they are fetched and it is retried.
///
/// # Errors
/// If the lists cannot be fetched, or the retry fails.
pub fn with_package_lists(mut what: impl FnMut() -> Result<()>) -> Result<()> {
    if what().is_ok() {
        return Ok(());
    }
    let as_root = if rustix::process::geteuid().is_root() { "" } else { "sudo --non-interactive " };
    Tool::new(&format!("{as_root}apt-get --quiet update")).check()?;
    what()
}

/// Downloads a package as a file into `folder`.
///
/// # Errors
/// If apt knows no such package, or cannot fetch it.
pub fn download_package(package: &str, folder: &Path) -> Result<()> {
    Tool::new("apt-get --quiet download").arg(package).current_dir(folder).check()?;
    Ok(())
}

/// Downloads a package and unpacks it into `folder`, which is created.
///
/// # Errors
/// Like [`download_package`]; also if the folder cannot be written.
pub fn unpack_package(package: &str, folder: &Path) -> Result<()> {
    let place = tempfile::tempdir().context("cannot make a folder to download to")?;
    with_package_lists(|| download_package(package, place.path()))?;
    let mut files = fs::read_dir(place.path())?;
    let file = files.next().with_context(|| format!("apt downloaded no {package}"))??;
    Tool::new("dpkg-deb --extract").arg(file.path()).arg(folder).check()?;
    Ok(())
}
