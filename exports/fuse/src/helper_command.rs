//! Binding of loop devices to served files, in a separate process (see [`crate::helper_runner`]).
//!
//! The command is one argument, and the response is one line; both are JSON.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use block_device::WriteCache;
use export_kit::{AttachError, AttachErrorKind};
use kernel::{Backing, LoopControl, LoopDevice, Partitions};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};

use crate::file_users::{self, FileUser};
use crate::loop_devices::{
    DURABLE_MARK, Listed, OUR_MARK, Whose, any_path, backing_file, list, sequence_of,
};
use crate::loop_queue::{
    Completion, cache_name, set_completion, set_queue_attribute, set_write_cache,
};
use crate::request::OPEN_DURABLE;

/// Maximum number of free devices that are tried. Another process may bind each of them first.
const BIND_ATTEMPTS_MAX: u32 = 16;

/// Maximum wait for another process that attaches the same file.
const ATTACH_PATIENCE: Duration = Duration::from_secs(2);

/// Maximum wait for a device to be unbound after it was cleared, because its last user may just be
/// closing it.
const UNBIND_PATIENCE: Duration = Duration::from_secs(2);

/// Polling interval of the waits for an attachment and an unbinding.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Operation on the files below `mount_point`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HelperCommand {
    Attach {
        #[serde(with = "any_path")]
        mount_point: PathBuf,
        name: String,
        shape: DeviceShape,
    },
    /// Unbinds a device. With a sequence number, only if the binding is still the same, because
    /// device numbers are reused.
    Detach { number: u32, sequence: Option<u64> },
    Resize {
        #[serde(with = "any_path")]
        mount_point: PathBuf,
        name: String,
        number: u32,
    },
    SetCache {
        number: u32,
        #[serde(with = "CacheForm")]
        write_cache: WriteCache,
    },
    List {
        #[serde(with = "any_path")]
        mount_point: PathBuf,
    },
    /// Scans for partitions, if that was not possible when the device was bound.
    Scan { number: u32, sequence: Option<u64> },
    /// Finds users of a file other than the device of this number.
    Users {
        #[serde(with = "any_path")]
        mount_point: PathBuf,
        node: u64,
        besides: Option<u32>,
    },
}

/// Attributes of a device, other than its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceShape {
    pub(crate) sector_bytes: u32,
    #[serde(with = "CacheForm")]
    pub(crate) write_cache: WriteCache,
    pub(crate) is_read_only: bool,
    /// Flush each write before it is answered, so that the kernel sends no flushes. Applies to a
    /// newly bound device; an existing one keeps its setting.
    pub(crate) flush_each_write: bool,
    /// The first block can be read without waiting, so the kernel can scan for partitions.
    pub(crate) is_at_hand: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "WriteCache")]
enum CacheForm {
    Absent,
    Volatile,
}

/// Outcome of a helper command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Done,
    Attached(Bound),
    Listed(Vec<Listed>),
    Users(Vec<FileUser>),
}

/// Binding of a loop device to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bound {
    pub(crate) number: u32,
    pub(crate) sequence: Option<u64>,
    /// True if this command created the binding.
    pub(crate) is_new: bool,
    /// The file is open with `O_DSYNC`, so the device sends no flushes.
    pub(crate) flushes_each_write: bool,
}

/// Error of a helper command, as it is sent between processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    #[serde(with = "KindForm")]
    kind: AttachErrorKind,
    message: String,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "AttachErrorKind")]
enum KindForm {
    Unavailable,
    NotSupported,
    NotFound,
    Busy,
    TimedOut,
    FdStore,
    Kernel,
    Registry,
}

impl HelperCommand {
    pub(crate) fn to_arg(&self) -> String {
        serde_json::to_string(self).expect("all of it has a form in JSON")
    }

    pub(crate) fn from_args(args: &[OsString]) -> Option<Self> {
        let [arg] = args else { return None };
        serde_json::from_str(arg.to_str()?).ok()
    }

    /// Executes the command in this process, and waits for the server of the files without a limit.
    pub(crate) fn run(&self) -> Result<Outcome, Refusal> {
        let done = match self {
            Self::Attach { mount_point, name, shape } => attach(mount_point, name, *shape),
            Self::Detach { number, sequence } => detach(*number, *sequence),
            Self::Resize { mount_point, name, number } => resize(&mount_point.join(name), *number),
            Self::SetCache { number, write_cache } => {
                set_write_cache(*number, *write_cache).map(|()| Outcome::Done)
            }
            Self::List { mount_point } => list(mount_point).map(Outcome::Listed),
            Self::Scan { number, sequence } => scan(*number, *sequence),
            Self::Users { mount_point, node, besides } => {
                users(mount_point, *node, *besides).map(Outcome::Users)
            }
        };
        // The error of the caller also begins with the command.
        let attempt = format!("cannot {self}: ");
        done.map_err(|error| {
            let chain = error.chain();
            let message = chain.strip_prefix(&attempt).unwrap_or(&chain).to_owned();
            Refusal { kind: error.kind, message }
        })
    }
}

impl fmt::Display for HelperCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attach { name, .. } => write!(f, "attach volume {name}"),
            Self::Detach { number, .. } => write!(f, "detach /dev/loop{number}"),
            Self::Resize { name, number, .. } => {
                write!(f, "resize /dev/loop{number} to the size of volume {name}")
            }
            Self::SetCache { number, write_cache } => {
                write!(f, "set the cache of /dev/loop{number} to {}", cache_name(*write_cache))
            }
            Self::List { mount_point } => {
                write!(f, "list the devices on {}", mount_point.display())
            }
            Self::Scan { number, .. } => write!(f, "scan for partitions on /dev/loop{number}"),
            Self::Users { mount_point, node, .. } => {
                write!(
                    f,
                    "find the processes that have file {node} of {} open",
                    mount_point.display()
                )
            }
        }
    }
}

/// Binds a device to the file, or finds the existing one.
///
/// The file is locked first, and stays locked as long as the device has it open. Therefore two
/// concurrent helpers, one of which may remain from a killed server, cannot bind the file twice.
fn attach(mount_point: &Path, name: &str, shape: DeviceShape) -> Result<Outcome, AttachError> {
    let path = mount_point.join(name);
    let failed = |error| AttachError::at_path("open", &path, error);
    let backing_file = OpenOptions::new()
        .read(true)
        // The driver makes a device read-only if its file is not open for writing.
        .write(!shape.is_read_only)
        .custom_flags(open_flags(shape).bits().cast_signed())
        .open(&path)
        .map_err(failed)?;
    let inode = backing_file.metadata().map_err(failed)?.ino();
    let deadline = Instant::now() + ATTACH_PATIENCE;
    loop {
        // Every device of this program keeps its file locked.
        if flock(&backing_file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return bind_with_direct_io(&path, backing_file, shape);
        }
        if let Some((number, flushes_each_write)) = device_on(mount_point, inode, shape)? {
            // An earlier process may have exited before it told the kernel.
            set_write_cache(number, shape.cache_of(flushes_each_write))?;
            let sequence = sequence_of(number);
            let bound = Bound { number, sequence, is_new: false, flushes_each_write };
            return Ok(Outcome::Attached(bound));
        }
        if Instant::now() >= deadline {
            return Err(AttachError::new(
                AttachErrorKind::Busy,
                format!("lock {}", path.display()),
            )
            .with_hint("another process has locked it; stop that process first (fuser shows it)"));
        }
        thread::sleep(LOOK_EVERY);
    }
}

impl DeviceShape {
    /// Write cache setting of a device, which depends on whether its file is open with `O_DSYNC`.
    fn cache_of(self, flushes_each_write: bool) -> WriteCache {
        if flushes_each_write { WriteCache::Absent } else { self.write_cache }
    }
}

fn open_flags(shape: DeviceShape) -> OFlags {
    match shape.flush_each_write {
        true => OFlags::DIRECT | OFlags::from_bits_retain(OPEN_DURABLE),
        false => OFlags::DIRECT,
    }
}

fn bind_with_direct_io(
    path: &Path,
    file: File,
    shape: DeviceShape,
) -> Result<Outcome, AttachError> {
    let (number, device) = bind_free_device(path, &file, shape)?;
    // From here on the device has the file open, and this process must close it.
    drop(file);
    let binding = device.binding().map_err(|error| device_error("examine", number, error))?;
    let sequence = sequence_of(number);
    let fit = match binding.is_some_and(|binding| binding.direct_io) {
        true => set_write_cache(number, shape.cache_of(shape.flush_each_write)),
        false => {
            let attempt = format!("use direct I/O on /dev/loop{number}");
            Err(AttachError::new(AttachErrorKind::Kernel, attempt)
                .with_hint("without it, every block would be held in memory twice"))
        }
    };
    if let Err(error) = fit {
        device.unbind_when_closed().map_err(|error| device_error("unbind", number, error))?;
        return Err(error);
    }
    set_completion(number, Completion::OnTheCoreThatAsked);
    let flushes_each_write = shape.flush_each_write;
    Ok(Outcome::Attached(Bound { number, sequence, is_new: true, flushes_each_write }))
}

/// Finds this program's device on a file, and whether it flushes each write. The device has our
/// prefix, or has the shape that an earlier version would have used.
fn device_on(
    mount_point: &Path,
    inode: u64,
    shape: DeviceShape,
) -> Result<Option<(u32, bool)>, AttachError> {
    let devices = list(mount_point)?;
    let is_ours = |device: &&Listed| match device {
        Listed::Alive { node, whose: Whose::Ours, .. } => *node == inode,
        _ => false,
    };
    let is_earlier = |device: &&Listed| match device {
        Listed::Alive { node, whose: Whose::Unmarked, is_read_only, .. } => {
            (*node, *is_read_only) == (inode, shape.is_read_only)
        }
        _ => false,
    };
    let found = devices.iter().find(is_ours).or_else(|| devices.iter().find(is_earlier));
    Ok(found.map(|device| (device.number(), device.flushes_each_write())))
}

fn bind_free_device(
    path: &Path,
    file: &File,
    shape: DeviceShape,
) -> Result<(u32, LoopDevice), AttachError> {
    let control = LoopControl::open().map_err(|error| {
        AttachError::new(AttachErrorKind::Unavailable, "open /dev/loop-control")
            .with_hint("load the loop module (modprobe loop) and run as root")
            .with_source(error)
    })?;
    let mark = if shape.flush_each_write { DURABLE_MARK } else { OUR_MARK };
    let name = format!("{mark}{}", path.display());
    let partitions = match shape.is_at_hand {
        true => Partitions::LookedFor,
        false => Partitions::LookedForLater,
    };
    let backing = Backing { file, name: &name, sector_bytes: shape.sector_bytes, partitions };
    for _ in 0..BIND_ATTEMPTS_MAX {
        let number = control
            .free_number()
            .map_err(|error| AttachError::of_call("find a free loop device", error))?;
        let device = LoopDevice::open(number);
        let device = device.map_err(|error| device_error("open", number, error))?;
        match device.bind(&backing) {
            Ok(()) => return Ok((number, device)),
            // Another process bound it first.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(error) => return Err(device_error("bind", number, error)),
        }
    }
    Err(AttachError::new(AttachErrorKind::Busy, "find a free loop device")
        .with_hint("other processes keep taking free loop devices; retry"))
}

fn detach(number: u32, sequence: Option<u64>) -> Result<Outcome, AttachError> {
    let busy = |why: &str| {
        AttachError::new(AttachErrorKind::Busy, format!("detach /dev/loop{number}")).with_hint(why)
    };
    let device = match LoopDevice::open_exclusively(number) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            return Err(busy("it is mounted or claimed; unmount it first"));
        }
        opened => opened.map_err(|error| device_error("open", number, error))?,
    };
    // The device cannot be bound again while it is open here.
    if sequence.is_some_and(|sequence| sequence_of(number) != Some(sequence)) {
        return Ok(Outcome::Done);
    }
    let bound_to = backing_file(number);
    // The kernel drops partitions at the unbinding only if the device has the partition scan flag,
    // which this sets. Otherwise they would outlive the binding and appear on the next file. The
    // error of a dead device is ignored, because its partition table cannot be read.
    let _refused = device.look_for_partitions();
    set_completion(number, Completion::NearTheCoreThatAsked);
    set_queue_attribute(number, "write_cache", cache_name(WriteCache::Volatile));
    match device.unbind_when_closed() {
        // The device was not bound.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
            return Ok(Outcome::Done);
        }
        cleared => cleared.map_err(|error| device_error("unbind", number, error))?,
    }
    drop(device);
    let deadline = Instant::now() + UNBIND_PATIENCE;
    while Instant::now() < deadline {
        // Another process may have bound the device again after it became free.
        if backing_file(number) != bound_to {
            return Ok(Outcome::Done);
        }
        thread::sleep(LOOK_EVERY);
    }
    let device = LoopDevice::open(number).map_err(|error| device_error("open", number, error))?;
    match device.stay_bound() {
        Ok(true) => {
            set_completion(number, Completion::OnTheCoreThatAsked);
            Err(busy("a process has it open; stop it first (fuser shows it)"))
        }
        Ok(false) => Ok(Outcome::Done),
        Err(error) => Err(device_error("examine", number, error)),
    }
}

fn resize(file: &Path, number: u32) -> Result<Outcome, AttachError> {
    // Reading the attributes updates the size in the kernel, from which the device then takes it.
    fs::metadata(file).map_err(|error| AttachError::at_path("examine", file, error))?;
    let device = LoopDevice::open(number).map_err(|error| device_error("open", number, error))?;
    device.update_size().map_err(|error| device_error("resize", number, error))?;
    Ok(Outcome::Done)
}

fn scan(number: u32, sequence: Option<u64>) -> Result<Outcome, AttachError> {
    let device = LoopDevice::open(number).map_err(|error| device_error("open", number, error))?;
    if sequence_of(number) == sequence {
        let looked = device.look_for_partitions();
        looked.map_err(|error| device_error("scan for partitions on", number, error))?;
    }
    Ok(Outcome::Done)
}

fn users(
    mount_point: &Path,
    node: u64,
    besides: Option<u32>,
) -> Result<Vec<FileUser>, AttachError> {
    let failed = |error| AttachError::at_path("examine", mount_point, error);
    let file_system = fs::metadata(mount_point).map_err(failed)?.dev();
    let mut users = file_users::processes(file_system, node).map_err(failed)?;
    for device in list(mount_point)? {
        if let Listed::Alive { number, node: on, is_read_only, .. } = device
            && on == node
            && besides != Some(number)
        {
            let words = format!("/dev/loop{number} is backed by its file; detach it (losetup -d)");
            users.push(FileUser { words, writes: !is_read_only });
        }
    }
    Ok(users)
}

fn device_error(action: &str, number: u32, source: io::Error) -> AttachError {
    AttachError::at_path(action, &LoopDevice::path(number), source)
}

impl Outcome {
    pub(crate) fn format(outcome: &Result<Self, Refusal>) -> String {
        serde_json::to_string(outcome).expect("all of it has a form in JSON")
    }

    /// Parses the output of [`Outcome::format`]. An incomplete response or the response to another
    /// command is an error.
    pub(crate) fn parse(answer: &str, command: &HelperCommand) -> Result<Self, AttachError> {
        match serde_json::from_str::<Result<Self, Refusal>>(answer) {
            Ok(Ok(outcome)) if outcome.is_of(command) => Ok(outcome),
            Ok(Err(Refusal { kind, message })) => {
                Err(AttachError::new(kind, command.to_string())
                    .with_source(io::Error::other(message)))
            }
            Ok(Ok(_)) | Err(_) => {
                Err(AttachError::new(AttachErrorKind::Kernel, command.to_string())
                    .with_hint("the helper process ended unexpectedly"))
            }
        }
    }

    fn is_of(&self, command: &HelperCommand) -> bool {
        match command {
            HelperCommand::List { .. } => matches!(self, Self::Listed(_)),
            HelperCommand::Attach { .. } => matches!(self, Self::Attached(_)),
            HelperCommand::Users { .. } => matches!(self, Self::Users(_)),
            HelperCommand::Detach { .. }
            | HelperCommand::Scan { .. }
            | HelperCommand::Resize { .. }
            | HelperCommand::SetCache { .. } => *self == Self::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    const SHAPE: DeviceShape = DeviceShape {
        sector_bytes: 512,
        write_cache: WriteCache::Absent,
        is_read_only: true,
        flush_each_write: true,
        is_at_hand: true,
    };

    fn bound(number: u32) -> Outcome {
        let bound = Bound { number, sequence: Some(4), is_new: true, flushes_each_write: true };
        Outcome::Attached(bound)
    }

    fn commands() -> [HelperCommand; 8] {
        let mount_point = PathBuf::from("/run/volumes");
        let name = "db".to_owned();
        [
            HelperCommand::Attach {
                mount_point: mount_point.clone(),
                name: name.clone(),
                shape: SHAPE,
            },
            HelperCommand::Detach { number: 3, sequence: None },
            HelperCommand::Detach { number: 3, sequence: Some(17) },
            HelperCommand::Resize { mount_point: mount_point.clone(), name, number: 3 },
            HelperCommand::SetCache { number: 3, write_cache: WriteCache::Volatile },
            HelperCommand::Scan { number: 3, sequence: Some(17) },
            HelperCommand::Users { mount_point: mount_point.clone(), node: 9, besides: Some(3) },
            HelperCommand::List { mount_point },
        ]
    }

    #[track_caller]
    fn check_way(outcome: Result<Outcome, Refusal>, command: &HelperCommand) {
        let parsed = Outcome::parse(&Outcome::format(&outcome), command);
        let parsed = parsed.map_err(|error| (error.kind, error.chain()));
        let expected = outcome
            .map_err(|Refusal { kind, message }| (kind, format!("cannot {command}: {message}")));
        assert_eq!(parsed, expected);
    }

    #[test]
    fn helper_commands_survive_the_way() {
        for command in commands() {
            assert_eq!(HelperCommand::from_args(&[command.to_arg().into()]), Some(command));
        }
    }

    #[test]
    fn what_is_no_helper_command_is_refused() {
        let list = commands()[7].to_arg();
        let cut = &list[..list.len() - 1];
        for args in [&[][..], &["List".into()], &[cut.into()], &[list.clone().into(), cut.into()]] {
            assert_eq!(HelperCommand::from_args(args), None);
        }
    }

    #[test]
    fn outcomes_survive_the_way() {
        let [attach, detach, _, resize, set_cache, scan, users, list] = commands();
        check_way(Ok(bound(7)), &attach);
        check_way(Ok(Outcome::Done), &scan);
        let user = FileUser { words: "a process".to_owned(), writes: true };
        check_way(Ok(Outcome::Users(vec![user])), &users);
        check_way(Ok(Outcome::Done), &detach);
        check_way(Ok(Outcome::Done), &resize);
        check_way(Ok(Outcome::Done), &set_cache);
        let whose = Whose::Unmarked;
        let flushes_each_write = true;
        let alive =
            Listed::Alive { number: 1, node: 9, whose, is_read_only: true, flushes_each_write };
        let dead =
            Listed::Dead { number: 2, file: OsString::from_vec(b"/run/a\t\xFF\n".into()).into() };
        let elsewhere = Listed::Elsewhere { number: 3, file: "/run/a".into() };
        check_way(Ok(Outcome::Listed(vec![alive, dead, elsewhere])), &list);
    }

    #[test]
    fn refusals_survive_the_way() {
        for kind in [
            AttachErrorKind::Unavailable,
            AttachErrorKind::NotSupported,
            AttachErrorKind::NotFound,
            AttachErrorKind::Busy,
            AttachErrorKind::TimedOut,
            AttachErrorKind::FdStore,
            AttachErrorKind::Kernel,
            AttachErrorKind::Registry,
        ] {
            let message = "why".to_owned();
            check_way(Err(Refusal { kind, message }), &commands()[0]);
        }
    }

    #[test]
    fn an_answer_without_an_end_or_to_another_command_is_an_error() {
        let [attach, .., list] = commands();
        let answer = Outcome::format(&Ok(bound(3)));
        for (answer, command) in
            [(&answer[..answer.len() - 1], &attach), (&answer, &list), ("", &list)]
        {
            assert!(Outcome::parse(answer, command).is_err(), "{answer:?}");
        }
    }

    #[test]
    fn attaching_a_file_that_is_not_there_says_so() {
        let command = HelperCommand::Attach {
            mount_point: "/nonexistent".into(),
            name: "db".into(),
            shape: SHAPE,
        };
        let Refusal { kind, message } = command.run().expect_err("there is no such file");
        assert_eq!(kind, AttachErrorKind::NotFound);
        assert!(message.contains("/nonexistent/db"), "{message}");
    }
}
