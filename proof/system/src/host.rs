//! Facilities of this host, and remains of a run.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::tool::Tool;

/// Kernel log. Each read returns one record.
const KERNEL_LOG: &str = "/dev/kmsg";
const KERNEL_RECORD_BYTES_MAX: usize = 8192;

/// A facility that not every host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Kernel block devices: root, `/dev/fuse` and loop devices.
    BlockDevices,
    /// Compressed RAM disks of the kernel, created on demand: root and zram.
    Zram,
    /// Permission to read the kernel's log.
    KernelLog,
    /// A program of this name.
    Program(&'static str),
}

/// Returns the reason for which the test or demonstration cannot run in full here, if there is one.
pub fn missing(needed: &[Ability]) -> Option<String> {
    needed.iter().find_map(|ability| match ability {
        Ability::BlockDevices => missing_for_block_devices(),
        Ability::Zram => missing_for_zram(),
        Ability::KernelLog => KernelLog::follow().err().map(|error| format!("{error:#}")),
        Ability::Program(name) => missing_program(name),
    })
}

/// Returns loop devices, mounts and processes that still refer to `folder`.
pub fn leftovers(folder: &Path) -> Result<Vec<String>> {
    let name = folder.to_string_lossy().into_owned();
    let mut found = Vec::new();
    let devices = Tool::new("losetup --list --noheadings --raw --output NAME,BACK-FILE").check()?;
    found.extend(devices.lines().filter(|line| line.contains(&name)).map(str::to_owned));
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    found.extend(mounts.lines().filter(|line| line.contains(&name)).map(str::to_owned));
    let users = processes_using(folder);
    found.extend(users.into_iter().map(|(id, words)| format!("process {id}: {words}")));
    Ok(found)
}

/// Returns processes, except this one, that name `folder` in their command line or listen on a Unix
/// socket in it.
pub(crate) fn processes_using(folder: &Path) -> Vec<(u32, String)> {
    let name = folder.to_string_lossy();
    let sockets = sockets_in(&name);
    let uses = |id: u32, words: &str| {
        id != std::process::id() && (words.contains(&*name) || has_one_of(id, &sockets))
    };
    processes().into_iter().filter(|(id, words)| uses(*id, words)).collect()
}

/// Returns the Unix sockets bound in `folder`, as shown in `/proc/N/fd`.
fn sockets_in(folder: &str) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let in_folder = table.lines().filter(|line| line.contains(folder));
    let numbers = in_folder.filter_map(|line| line.split_whitespace().nth(6));
    numbers.map(|number| PathBuf::from(format!("socket:[{number}]"))).collect()
}

fn has_one_of(process: u32, sockets: &[PathBuf]) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    open.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|it| sockets.contains(&it)))
}

/// Follows the messages that the kernel writes to its log from now on.
pub struct KernelLog {
    file: fs::File,
}

impl KernelLog {
    /// Fails if this process may not read the log.
    pub fn follow() -> Result<Self> {
        let mut file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
            .open(KERNEL_LOG)
            .with_context(|| format!("cannot read {KERNEL_LOG}"))?;
        let sought = file.seek(SeekFrom::End(0));
        sought.with_context(|| format!("cannot go to the end of {KERNEL_LOG}"))?;
        Ok(Self { file })
    }

    /// Returns kernel errors concerning `device` since the last call: failed requests, and damage
    /// found by file systems. Fails if messages were lost.
    pub fn complaints(&mut self, device: &Path) -> Result<Vec<String>> {
        let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut found = Vec::new();
        let mut record = vec![0; KERNEL_RECORD_BYTES_MAX];
        loop {
            match self.file.read(&mut record) {
                Ok(length) => {
                    let text = String::from_utf8_lossy(&record[..length]);
                    // The part before the semicolon has time and priority.
                    let line = text.split_once(';').map_or(&*text, |(_, line)| line).trim();
                    if is_complaint(line, &name) {
                        found.push(line.to_owned());
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(found),
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot read {KERNEL_LOG}"));
                }
            }
        }
    }
}

fn is_complaint(line: &str, device: &str) -> bool {
    let line = line.to_ascii_lowercase();
    let names_device = line.match_indices(device).any(|(start, _)| {
        let behind = line[start + device.len()..].chars().next();
        !behind.is_some_and(|it| it.is_ascii_digit())
    });
    names_device && ["error", "corrupt", "warning"].iter().any(|word| line.contains(word))
}

/// Returns each process with its command line.
fn processes() -> Vec<(u32, String)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let words = fs::read(entry.path().join("cmdline")).ok()?;
            Some((id, String::from_utf8_lossy(&words).replace('\0', " ")))
        })
        .collect()
}

fn missing_for_block_devices() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("block devices need root".to_owned());
    }
    for path in ["/dev/fuse", "/dev/loop-control"] {
        let device = fs::OpenOptions::new().read(true).write(true).open(path);
        if let Err(error) = device {
            return Some(format!("block devices need {path}: {error}"));
        }
    }
    None
}

fn missing_for_zram() -> Option<String> {
    // Reading the file would create a device; checking its existence does not.
    let control = Path::new("/sys/class/zram-control/hot_add");
    let is_root = rustix::process::geteuid().is_root();
    match (is_root, control.exists()) {
        (false, _) => Some("zram needs root".to_owned()),
        (true, false) => Some("zram is not in this kernel (try: modprobe zram)".to_owned()),
        (true, true) => None,
    }
}

fn missing_program(name: &str) -> Option<String> {
    let found = Tool::new("sh -c").arg(format!("command -v {name}")).check();
    found.err().map(|_| format!("the program {name} is not installed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: bool) {
        assert_eq!(is_complaint(line, "loop1"), expected);
    }

    #[test]
    fn a_complaint_is_about_the_device_and_about_trouble() {
        check("[1.2] I/O error, dev loop1, sector 0 op 0x0:(READ)", true);
        check("[1.2] EXT4-fs error (device loop1): ext4_lookup", true);
        check("[1.2] I/O error, dev loop10, sector 0 op 0x0:(READ)", false);
        check("[1.2] EXT4-fs (loop1): mounted filesystem", false);
    }

    #[test]
    fn the_kernels_log_is_read_from_now_on() {
        if let Some(reason) = missing(&[Ability::KernelLog]) {
            eprintln!("skipped: {reason}");
            return;
        }
        let mut log = KernelLog::follow().expect("it may be read");
        let name = format!("memlane-test-{}", std::process::id());
        // Readers see a line when it is complete.
        fs::write(KERNEL_LOG, format!("I/O error, dev {name}, which a test made up\n"))
            .expect("who reads it may write it");
        let complaints = log.complaints(Path::new(&name)).expect("it may be read");
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(log.complaints(Path::new(&name)).expect("it may be read").is_empty());
    }

    #[test]
    fn a_process_that_listens_in_a_folder_uses_it() {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let socket = folder.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&socket).expect("the path is free");
        assert!(has_one_of(std::process::id(), &sockets_in(&folder.path().to_string_lossy())));
        drop(listener);
        assert!(!has_one_of(std::process::id(), &sockets_in(&folder.path().to_string_lossy())));
    }

    #[test]
    fn what_every_host_lacks_is_missing() {
        let missing = missing(&[Ability::Program("no-such-program")]);
        assert!(missing.is_some_and(|reason| reason.contains("no-such-program")));
    }
}
