//! Search for loop devices whose backing files have paths below a mount point.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use export_kit::AttachError;
use kernel::{LoopBinding, LoopDevice};
use serde::{Deserialize, Serialize};

/// Maximum wait for the server of a device's backing file. Only a device that another process
/// serves, or none any more, exceeds it.
const EXAMINE_PATIENCE: Duration = Duration::from_secs(3);

/// Prefix of the names of loop devices that this program binds. Other programs may bind devices to
/// the same files.
pub(crate) const OUR_MARK: &str = "memlane:";

/// Prefix for a device whose file is open with `O_DSYNC`: each write is flushed, and the kernel
/// sends no flushes. The prefix of a device does not change while it is bound.
pub(crate) const DURABLE_MARK: &str = "memlane:dsync:";

/// A loop device on a file below the mount point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Listed {
    Alive {
        number: u32,
        node: u64,
        whose: Whose,
        is_read_only: bool,
        flushes_each_write: bool,
    },
    /// Its connection is lost: the kernel fails requests to its file.
    Dead {
        number: u32,
        #[serde(with = "any_path")]
        file: PathBuf,
    },
    /// The path is that of another mount, as in another mount namespace. A daemon serves it there,
    /// or was killed and nobody answers.
    Elsewhere {
        number: u32,
        #[serde(with = "any_path")]
        file: PathBuf,
    },
}

/// Owner of a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Whose {
    Ours,
    /// Either an earlier version of this program, if the file is still locked, or another program.
    Unmarked,
    Others,
}

impl Listed {
    pub(crate) fn number(&self) -> u32 {
        let (Self::Alive { number, .. }
        | Self::Dead { number, .. }
        | Self::Elsewhere { number, .. }) = self;
        *number
    }

    pub(crate) fn flushes_each_write(&self) -> bool {
        matches!(self, Self::Alive { flushes_each_write: true, .. })
    }
}

/// Serialization of paths, which may contain arbitrary bytes.
pub(crate) mod any_path {
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(path: &Path, into: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().serialize(into)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        OsString::deserialize(from).map(PathBuf::from)
    }
}

/// Lists all loop devices on files below `mount_point`, also if the files were renamed.
///
/// The path of a file in another mount namespace may be the same, and examining its device waits
/// for the server there. So each device is examined by a thread, which ends with this process.
pub(crate) fn list(mount_point: &Path) -> Result<Vec<Listed>, AttachError> {
    // Waits for the server of this mount, so that its devices answer at once. Fails if the
    // connection is lost.
    let file_system = fs::metadata(mount_point).ok().map(|root| root.dev());
    let (answers, answered) = mpsc::channel();
    let mut waiting = bound_below(mount_point)?;
    for (number, file) in &waiting {
        let (number, file, answers) = (*number, file.clone(), answers.clone());
        // The receiver stops waiting at the deadline.
        let examine = move || drop(answers.send((number, examine(file_system, number, file))));
        let started = thread::Builder::new().spawn(examine);
        started
            .map_err(|error| AttachError::of_call("start a thread to examine a device", error))?;
    }
    drop(answers);
    let deadline = Instant::now() + EXAMINE_PATIENCE;
    let mut devices = Vec::new();
    let left = || deadline.saturating_duration_since(Instant::now());
    while let Ok((number, device)) = answered.recv_timeout(left()) {
        waiting.retain(|(other, _)| *other != number);
        devices.extend(device);
    }
    let silent = waiting.into_iter().map(|(number, file)| Listed::Elsewhere { number, file });
    devices.extend(silent);
    devices.sort_unstable_by_key(Listed::number);
    Ok(devices)
}

/// Lists loop devices whose backing files have paths below `mount_point`. Reads sysfs only.
pub(crate) fn bound_below(mount_point: &Path) -> Result<Vec<(u32, PathBuf)>, AttachError> {
    let entries = fs::read_dir("/sys/block").map_err(|error| {
        AttachError::at_path("list block devices in", "/sys/block".as_ref(), error)
    })?;
    let numbers = entries.filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.strip_prefix("loop")?.parse().ok()
    });
    let bound = numbers.filter_map(|number: u32| Some((number, backing_file(number)?)));
    Ok(bound.filter(|(_, file)| file.starts_with(mount_point)).collect())
}

/// Examines a device whose backing file has a path below the mount of `file_system`.
fn examine(file_system: Option<u64>, number: u32, file: PathBuf) -> Option<Listed> {
    match LoopDevice::open(number).and_then(|device| device.binding()) {
        // The device was unbound meanwhile.
        Ok(None) => None,
        Ok(Some(binding)) if Some(binding.file_system) == file_system => {
            let (node, is_read_only) = (binding.inode, binding.is_read_only);
            let flushes_each_write = binding.name.starts_with(DURABLE_MARK);
            let whose = whose(&binding);
            Some(Listed::Alive { number, node, whose, is_read_only, flushes_each_write })
        }
        // Attributes are not cached, so a server has answered.
        Ok(Some(_)) => Some(Listed::Elsewhere { number, file }),
        Err(_) => Some(Listed::Dead { number, file }),
    }
}

fn whose(binding: &LoopBinding) -> Whose {
    match (binding.name.starts_with(OUR_MARK), binding.direct_io && binding.is_whole) {
        (true, true) => Whose::Ours,
        (false, true) => Whose::Unmarked,
        (_, false) => Whose::Others,
    }
}

/// Path of a device's backing file at the time of binding. Reads sysfs only.
pub(crate) fn backing_file(number: u32) -> Option<PathBuf> {
    let mut path = fs::read(format!("/sys/block/loop{number}/loop/backing_file")).ok()?;
    if path.last() == Some(&b'\n') {
        path.pop();
    }
    Some(PathBuf::from(OsString::from_vec(path)))
}

/// Sequence number of a binding (`diskseq`), which the kernel never reuses. `None` for an unbound
/// device, and for kernels without `diskseq`.
pub(crate) fn sequence_of(number: u32) -> Option<u64> {
    backing_file(number)?;
    let text = fs::read_to_string(format!("/sys/block/loop{number}/diskseq")).ok()?;
    text.trim().parse().ok()
}
