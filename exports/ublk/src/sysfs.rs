//! Sysfs attributes and settings of devices.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use block_device::WriteCache;
use export_kit::{AttachError, AttachErrorKind};

use crate::bounded::within;

const CHANNELS: &str = "/sys/class/ublk-char";

const SETTING_TIME_MAX: Duration = Duration::from_secs(10);

/// Numbers of all ublk devices of this host, including those of other servers.
pub(crate) fn device_ids() -> io::Result<Vec<u32>> {
    let entries = match fs::read_dir(CHANNELS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => result?,
    };
    let id = |name: &str| name.strip_prefix("ublkc")?.parse().ok();
    Ok(entries.flatten().filter_map(|entry| id(entry.file_name().to_str()?)).collect())
}

/// Tunes a device. Errors, as with a read-only sysfs, are ignored: the device is only slower.
///
/// - No I/O scheduler, because memory does not benefit from reordering.
/// - One request fewer than the depth of the queue. Kernels before 6.15 detect the death of a
///   server immediately only if one of its commands is waiting for a request; otherwise after the
///   timeout of a request, half a minute. With this setting one command always waits.
pub(crate) fn tune(id: u32, depth: u16) {
    let requests = depth.saturating_sub(1).max(1).to_string();
    let settings =
        [("scheduler", "none", "[none]".to_owned()), ("nr_requests", &requests, requests.clone())];
    for (attribute, value, shown) in settings {
        let path = attribute_path(id, attribute);
        // Skipped if already set, because the kernel waits for all requests before a change, and
        // some wait for a disk.
        let is_set = fs::read_to_string(&path).is_ok_and(|now| now.contains(&shown));
        if is_set {
            continue;
        }
        let value = value.to_owned();
        if let Err(error) = within(SETTING_TIME_MAX, move || fs::write(path, value)) {
            tracing::debug!(id, attribute, %error, "a device keeps the kernel's own setting");
        }
    }
}

/// Tells the kernel whether it must send flushes, from the next request on. Fails if the kernel
/// would omit required flushes.
pub(crate) fn set_write_cache(id: u32, cache: WriteCache) -> Result<(), AttachError> {
    let name = match cache {
        WriteCache::Volatile => "write back",
        WriteCache::Absent => "write through",
    };
    let path = attribute_path(id, "write_cache");
    let is_set = || fs::read_to_string(&path).is_ok_and(|now| now.trim() == name);
    if is_set() {
        return Ok(());
    }
    let changing = path.clone();
    let refused = within(SETTING_TIME_MAX, move || fs::write(changing, name)).err();
    if cache == WriteCache::Absent || is_set() {
        return Ok(());
    }
    let error = AttachError::new(
        AttachErrorKind::Kernel,
        format!("enable the write cache (flushes) of /dev/ublkb{id}"),
    )
    .with_hint(format!("\"{name}\" cannot be written to {path}"));
    Err(match refused {
        Some(source) => error.with_source(source),
        None => error,
    })
}

/// Size of the device according to the kernel.
pub(crate) fn size_bytes(id: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/sys/block/ublkb{id}/size"))?;
    let sectors: u64 = text.trim().parse().map_err(io::Error::other)?;
    Ok(sectors << 9)
}

/// Major and minor numbers of the block device, and of its partitions.
pub(crate) fn device_numbers(id: u32) -> io::Result<Vec<(u32, u32)>> {
    let folder = PathBuf::from(format!("/sys/block/ublkb{id}"));
    let mut numbers = vec![number_in(&folder)?];
    for entry in fs::read_dir(&folder)?.flatten() {
        // Partitions may be removed concurrently.
        if entry.path().join("partition").exists() {
            numbers.extend(number_in(&entry.path()));
        }
    }
    Ok(numbers)
}

fn number_in(folder: &Path) -> io::Result<(u32, u32)> {
    let text = fs::read_to_string(folder.join("dev"))?;
    let numbers = text
        .trim()
        .split_once(':')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    numbers.ok_or_else(|| io::Error::other("no device number in sysfs"))
}

/// Loop devices of this host, by name, with their backing files.
pub(crate) fn loop_backings() -> io::Result<Vec<(String, PathBuf)>> {
    let backing = |name: String| {
        let path = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
        Some((name, PathBuf::from(path.trim_end_matches('\n'))))
    };
    let names = fs::read_dir("/sys/block")?.flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter(|name| name.starts_with("loop")).filter_map(backing).collect())
}

fn attribute_path(id: u32, attribute: &str) -> String {
    format!("/sys/block/ublkb{id}/queue/{attribute}")
}
