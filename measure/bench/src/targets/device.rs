//! Block devices: kernel statistics, and the check before overwriting one.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use results::DeviceIo;
use rustix::fs::{Mode, OFlags};
use system::Tool;

/// Returns the kernel's statistics since the creation of the device with this kernel name
/// (`zram1`).
pub fn counts(device: &str) -> Result<DeviceIo> {
    let path = format!("/sys/block/{device}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    parse_counts(&text).with_context(|| format!("{path} holds {text:?}"))
}

/// Returns the device's sector size, if the kernel reports it.
pub(crate) fn sector_bytes(device: &str) -> Option<u32> {
    let path = format!("/sys/block/{device}/queue/logical_block_size");
    fs::read_to_string(path).ok()?.trim().parse().ok().filter(|bytes| *bytes > 0)
}

/// Parses the statistics. Older kernels do not count discards and flushes, which are then 0.
fn parse_counts(text: &str) -> Option<DeviceIo> {
    let fields: Vec<u64> =
        text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [read_requests, _, read_sectors, _, write_requests, _, write_sectors, ..] = fields[..]
    else {
        return None;
    };
    let later = |index: usize| fields.get(index).copied().unwrap_or(0);
    Some(DeviceIo {
        read_requests,
        read_sectors,
        write_requests,
        write_sectors,
        discard_requests: later(11),
        flush_requests: later(15),
    })
}

/// Returns the difference of two readings.
pub fn since(now: DeviceIo, before: DeviceIo) -> DeviceIo {
    DeviceIo {
        read_requests: now.read_requests.saturating_sub(before.read_requests),
        read_sectors: now.read_sectors.saturating_sub(before.read_sectors),
        write_requests: now.write_requests.saturating_sub(before.write_requests),
        write_sectors: now.write_sectors.saturating_sub(before.write_sectors),
        flush_requests: now.flush_requests.saturating_sub(before.flush_requests),
        discard_requests: now.discard_requests.saturating_sub(before.discard_requests),
    }
}

/// Returns the device's name in `/sys/block`.
pub(crate) fn kernel_name(device: &Path) -> Result<String> {
    let real = fs::canonicalize(device)
        .with_context(|| format!("cannot find the device {}", device.display()))?;
    let name = real.file_name().with_context(|| format!("{} has no name", device.display()))?;
    Ok(name.to_string_lossy().into_owned())
}

/// Fails if a device has contents or is in use, listing the findings: a file system, partition
/// table or other signature, a mount, a holder, swap, or a process that has it open exclusively.
pub fn check_is_free(device: &Path) -> Result<()> {
    let shown = device.display();
    let data = fs::metadata(device).with_context(|| format!("cannot stat {shown}"))?;
    ensure!(data.file_type().is_block_device(), "{shown} is no block device");
    let mut found = signatures(device)?;
    found.extend(mounts(&device_numbers(data.rdev()))?);
    found.extend(holders(device)?);
    found.extend(swap(device)?);
    found.extend(exclusive_owner(device));
    ensure!(
        found.is_empty(),
        "refusing to overwrite {shown}, which is in use: {}",
        found.join("; ")
    );
    Ok(())
}

fn signatures(device: &Path) -> Result<Vec<String>> {
    let printed =
        Tool::new("wipefs --no-act --noheadings --output TYPE,OFFSET").arg(device).check()?;
    let signature = |line: &str| format!("it has a signature of {}", line.trim());
    let mut found: Vec<String> =
        printed.lines().filter(|line| !line.trim().is_empty()).map(signature).collect();
    // Exit code 2 means that nothing was found.
    let probed = Tool::new("blkid --probe").arg(device).run()?;
    match probed.exit_code {
        Some(0) => found.push(format!("blkid found {}", probed.stdout.trim())),
        Some(2) => {}
        code => bail!("blkid failed on {} ({code:?}): {}", device.display(), probed.stderr.trim()),
    }
    Ok(found)
}

fn mounts(numbers: &str) -> Result<Vec<String>> {
    let table =
        fs::read_to_string("/proc/self/mountinfo").context("cannot read the mount table")?;
    let of_device = table.lines().filter(|line| line.split_whitespace().nth(2) == Some(numbers));
    let place = |line: &str| line.split_whitespace().nth(4).unwrap_or_default().to_owned();
    Ok(of_device.map(|line| format!("it is mounted on {}", place(line))).collect())
}

fn holders(device: &Path) -> Result<Vec<String>> {
    let folder = format!("/sys/class/block/{}", kernel_name(device)?);
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("{folder}/holders")).into_iter().flatten().flatten() {
        found.push(format!("{} holds it", entry.file_name().display()));
    }
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot list {folder}"))?;
    for entry in entries.flatten().filter(|entry| entry.path().join("partition").exists()) {
        found.push(format!("it has the partition {}", entry.file_name().display()));
    }
    Ok(found)
}

fn swap(device: &Path) -> Result<Vec<String>> {
    let real = fs::canonicalize(device)?;
    let table = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let is_swap =
        table.lines().any(|line| line.split_whitespace().next().map(Path::new) == Some(&real));
    Ok(is_swap.then(|| "it is used as swap".to_owned()).into_iter().collect())
}

fn exclusive_owner(device: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let opened = rustix::fs::open(device, flags, Mode::empty());
    opened.err().map(|error| format!("it cannot be opened exclusively: {error}"))
}

fn device_numbers(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_sectors_are_told_apart() {
        let line = "10 1 80 5 20 2 160 7 0 9 12 30 0 240 1 40 2\n";
        let expected = DeviceIo {
            read_requests: 10,
            read_sectors: 80,
            write_requests: 20,
            write_sectors: 160,
            flush_requests: 40,
            discard_requests: 30,
        };
        assert_eq!(parse_counts(line), Some(expected));
    }

    #[test]
    fn an_old_kernel_counts_less() {
        let counted = parse_counts("10 1 80 5 20 2 160 7 0 9 12").expect("it has what matters");
        assert_eq!((counted.flush_requests, counted.discard_requests), (0, 0));
        assert_eq!(parse_counts("10 1"), None);
    }

    #[test]
    fn what_is_no_device_is_refused() {
        let error = check_is_free(Path::new("/proc/self/exe")).expect_err("it is a program");
        assert!(error.to_string().contains("no block device"), "{error:#}");
    }
}
