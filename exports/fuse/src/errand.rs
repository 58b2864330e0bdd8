//! Binding loop devices to served files, in a process of its own (see [`crate::errand_runner`]).
//!
//! An errand arrives as arguments and answers with lines of tab-separated words, the first of which
//! says what the line is.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use kernel::{Backing, LoopControl, LoopDevice};
use rustix::fs::{FlockOperation, flock};

use crate::error::{FuseError, FuseErrorKind};

/// Free devices that are tried before giving up: each may be snatched by another process.
const BIND_ATTEMPTS_MAX: u32 = 16;

/// How long another process may be at attaching the same file.
const ATTACH_PATIENCE: Duration = Duration::from_secs(2);

/// How long a device may take to be unbound after it was cleared: its last user may just be closing
/// it.
const UNBIND_PATIENCE: Duration = Duration::from_secs(2);

/// How often either is asked meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Something to be done with the files below `mount_point`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    Attach {
        mount_point: PathBuf,
        name: String,
        shape: DeviceShape,
    },
    /// With a sequence number: only while the device is still bound as it was then. Numbers of
    /// devices are given again.
    Detach {
        number: u32,
        sequence: Option<u64>,
    },
    Resize {
        mount_point: PathBuf,
        name: String,
        number: u32,
    },
    SetCache {
        number: u32,
        write_cache: CacheMode,
    },
    List {
        mount_point: PathBuf,
    },
}

/// What the kernel is told of a device, beside its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceShape {
    pub(crate) sector_bytes: u32,
    pub(crate) write_cache: CacheMode,
    pub(crate) access: Access,
}

/// Whether the kernel lets anybody write to a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    ReadWrite,
    ReadOnly,
}

impl Access {
    fn name(self) -> &'static str {
        match self {
            Self::ReadWrite => "read-write",
            Self::ReadOnly => "read-only",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::ReadWrite, Self::ReadOnly].into_iter().find(|access| access.name() == name)
    }
}

/// `queue/write_cache` of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheMode {
    /// Flushes are sent.
    WriteBack,
    /// There is no cache to flush.
    WriteThrough,
}

impl CacheMode {
    fn name(self) -> &'static str {
        match self {
            Self::WriteBack => "write back",
            Self::WriteThrough => "write through",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::WriteBack, Self::WriteThrough].into_iter().find(|mode| mode.name() == name)
    }
}

/// What came of an errand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Attached { number: u32 },
    Listed(Vec<Listed>),
}

/// One loop device on a file below the mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    Alive { number: u32, node: u64 },
    Dead { number: u32, file: PathBuf },
}

/// Why an errand failed, as it travels between processes.
pub(crate) type Refusal = (FuseErrorKind, String);

impl Errand {
    pub(crate) fn to_args(&self) -> Vec<OsString> {
        let text = |text: &dyn fmt::Display| OsString::from(text.to_string());
        match self {
            Self::Attach { mount_point, name, shape } => {
                let sector = text(&shape.sector_bytes);
                let words = [shape.write_cache.name(), shape.access.name()].map(OsString::from);
                let [cache, access] = words;
                vec!["attach".into(), mount_point.into(), name.into(), sector, cache, access]
            }
            Self::Detach { number, sequence } => {
                let sequence = sequence.iter().map(|sequence| text(sequence));
                ["detach".into(), text(number)].into_iter().chain(sequence).collect()
            }
            Self::Resize { mount_point, name, number } => {
                vec!["resize".into(), mount_point.into(), name.into(), text(number)]
            }
            Self::SetCache { number, write_cache } => {
                vec!["set-cache".into(), text(number), write_cache.name().into()]
            }
            Self::List { mount_point } => vec!["list".into(), mount_point.into()],
        }
    }

    pub(crate) fn from_args(args: &[OsString]) -> Option<Self> {
        let number = |arg: &OsString| arg.to_str()?.parse().ok();
        let name = |arg: &OsString| arg.to_str().map(str::to_owned);
        let (what, args) = args.split_first()?;
        Some(match (what.to_str()?, args) {
            ("attach", [place, file, sector, cache, access]) => Self::Attach {
                mount_point: place.into(),
                name: name(file)?,
                shape: DeviceShape {
                    sector_bytes: number(sector)?,
                    write_cache: CacheMode::from_name(cache.to_str()?)?,
                    access: Access::from_name(access.to_str()?)?,
                },
            },
            ("detach", [device]) => Self::Detach { number: number(device)?, sequence: None },
            ("detach", [device, sequence]) => Self::Detach {
                number: number(device)?,
                sequence: Some(sequence.to_str()?.parse().ok()?),
            },
            ("resize", [place, file, device]) => Self::Resize {
                mount_point: place.into(),
                name: name(file)?,
                number: number(device)?,
            },
            ("set-cache", [device, cache]) => Self::SetCache {
                number: number(device)?,
                write_cache: CacheMode::from_name(cache.to_str()?)?,
            },
            ("list", [place]) => Self::List { mount_point: place.into() },
            _ => return None,
        })
    }

    /// Does it in this process, waiting for the server of the files as long as it takes.
    pub(crate) fn run(&self) -> Result<Outcome, Refusal> {
        let done = match self {
            Self::Attach { mount_point, name, shape } => attach(mount_point, name, *shape),
            Self::Detach { number, sequence } => detach(*number, *sequence),
            Self::Resize { mount_point, name, number } => resize(&mount_point.join(name), *number),
            Self::SetCache { number, write_cache } => {
                set_write_cache(*number, *write_cache).map(|()| Outcome::Done)
            }
            Self::List { mount_point } => list(mount_point).map(Outcome::Listed),
        };
        done.map_err(|error| (error.kind, error.chain()))
    }
}

impl fmt::Display for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attach { name, .. } => write!(f, "attach volume {name}"),
            Self::Detach { number, .. } => write!(f, "detach /dev/loop{number}"),
            Self::Resize { name, number, .. } => {
                write!(f, "give /dev/loop{number} the size of volume {name}")
            }
            Self::SetCache { number, write_cache } => {
                write!(f, "set the cache of /dev/loop{number} to {}", write_cache.name())
            }
            Self::List { mount_point } => {
                write!(f, "list the devices on {}", mount_point.display())
            }
        }
    }
}

/// Binds a device to the file, or finds the one that is.
///
/// The file is locked first, and the lock lasts as long as the device keeps the file open. So two
/// errands, of which one may be left over from a server that was killed, cannot bind it twice.
fn attach(mount_point: &Path, name: &str, shape: DeviceShape) -> Result<Outcome, FuseError> {
    let path = mount_point.join(name);
    let failed = |error| FuseError::at_path("open", &path, error);
    let backing_file = OpenOptions::new()
        .read(true)
        // The driver makes a device read-only whose file is not open for writing.
        .write(shape.access == Access::ReadWrite)
        .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
        .open(&path)
        .map_err(failed)?;
    let inode = backing_file.metadata().map_err(failed)?.ino();
    let deadline = Instant::now() + ATTACH_PATIENCE;
    loop {
        let is_locked = flock(&backing_file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if let Some(number) = device_on(mount_point, inode)? {
            // A former process may have ended before it told the kernel.
            set_write_cache(number, shape.write_cache)?;
            return Ok(Outcome::Attached { number });
        }
        if is_locked {
            return bind_with_direct_io(&path, backing_file, shape);
        }
        if Instant::now() >= deadline {
            return Err(FuseError::new(FuseErrorKind::Busy, format!("lock {}", path.display()))
                .with_hint("another process has locked it; end that first (fuser shows which)"));
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn bind_with_direct_io(path: &Path, file: File, shape: DeviceShape) -> Result<Outcome, FuseError> {
    let (number, device) = bind_free_device(path, &file, shape.sector_bytes)?;
    // From here on the device keeps the file open, and this process must not.
    drop(file);
    let binding = device.binding().map_err(|error| device_error("examine", number, error))?;
    let fit = match binding.is_some_and(|binding| binding.direct_io) {
        true => set_write_cache(number, shape.write_cache),
        false => {
            let attempt = format!("use direct I/O on /dev/loop{number}");
            Err(FuseError::new(FuseErrorKind::Kernel, attempt)
                .with_hint("without it, every block would be held in memory twice"))
        }
    };
    if fit.is_ok() {
        set_completion(number, Completion::OnTheCoreThatAsked);
        return Ok(Outcome::Attached { number });
    }
    device.unbind_when_closed().map_err(|error| device_error("unbind", number, error))?;
    fit.map(|()| Outcome::Attached { number })
}

/// Where a block device completes requests: `rq_affinity` in the kernel's
/// Documentation/ABI/stable/sysfs-block.
enum Completion {
    /// On any core that shares a cache: the kernel's default.
    NearTheCoreThatAsked,
    /// The serving thread's core would wake whoever asked there, and both would then share that
    /// core while another one idles.
    OnTheCoreThatAsked,
}

fn set_completion(number: u32, completion: Completion) {
    let value = match completion {
        Completion::NearTheCoreThatAsked => "1",
        Completion::OnTheCoreThatAsked => "2",
    };
    set_queue_attribute(number, "rq_affinity", value);
}

/// Tells the kernel whether it must send flushes (Documentation/block/writeback_cache_control),
/// from the next request on. Fails when it would send none although it must.
fn set_write_cache(number: u32, mode: CacheMode) -> Result<(), FuseError> {
    let path = queue_attribute(number, "write_cache");
    let is_set = || fs::read_to_string(&path).is_ok_and(|now| now.trim() == mode.name());
    if is_set() {
        return Ok(());
    }
    set_queue_attribute(number, "write_cache", mode.name());
    if mode == CacheMode::WriteThrough || is_set() {
        return Ok(());
    }
    Err(FuseError::new(FuseErrorKind::Kernel, format!("have flushes sent to /dev/loop{number}"))
        .with_hint(format!("\"{}\" cannot be written to {path}", mode.name())))
}

/// Refused where sysfs is read-only: a device that was not told better is slower then, and nothing
/// else.
fn set_queue_attribute(number: u32, attribute: &str, value: &str) {
    let _refused = fs::write(queue_attribute(number, attribute), value);
}

fn queue_attribute(number: u32, attribute: &str) -> String {
    format!("/sys/block/loop{number}/queue/{attribute}")
}

fn device_on(mount_point: &Path, inode: u64) -> Result<Option<u32>, FuseError> {
    Ok(list(mount_point)?.into_iter().find_map(|device| match device {
        Listed::Alive { number, node } if node == inode => Some(number),
        _ => None,
    }))
}

fn bind_free_device(
    path: &Path,
    file: &File,
    sector_bytes: u32,
) -> Result<(u32, LoopDevice), FuseError> {
    let control = LoopControl::open().map_err(|error| {
        FuseError::new(FuseErrorKind::Unavailable, "open /dev/loop-control")
            .with_hint("load the loop module (modprobe loop) and run as root")
            .with_source(error)
    })?;
    let name = path.to_string_lossy();
    let backing = Backing { file, name: &name, sector_bytes };
    for _ in 0..BIND_ATTEMPTS_MAX {
        let number = control
            .free_number()
            .map_err(|error| FuseError::of_call("find a free loop device", error))?;
        let device = LoopDevice::open(number);
        let device = device.map_err(|error| device_error("open", number, error))?;
        match device.bind(&backing) {
            Ok(()) => return Ok((number, device)),
            // Another process was quicker.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(error) => return Err(device_error("bind", number, error)),
        }
    }
    Err(FuseError::new(FuseErrorKind::Busy, "find a free loop device")
        .with_hint("other processes take them as fast as they become free; try again"))
}

fn detach(number: u32, sequence: Option<u64>) -> Result<Outcome, FuseError> {
    let busy = |why: &str| {
        FuseError::new(FuseErrorKind::Busy, format!("detach /dev/loop{number}")).with_hint(why)
    };
    let device = match LoopDevice::open_exclusively(number) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            return Err(busy("it is mounted or claimed; unmount it first"));
        }
        opened => opened.map_err(|error| device_error("open", number, error))?,
    };
    // Nobody can bind it anew while it is open here.
    if sequence.is_some_and(|sequence| sequence_of(number) != Some(sequence)) {
        return Ok(Outcome::Done);
    }
    let bound_to = backing_file(number);
    set_completion(number, Completion::NearTheCoreThatAsked);
    set_queue_attribute(number, "write_cache", CacheMode::WriteBack.name());
    match device.unbind_when_closed() {
        // It was not bound.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
            return Ok(Outcome::Done);
        }
        cleared => cleared.map_err(|error| device_error("unbind", number, error))?,
    }
    drop(device);
    let deadline = Instant::now() + UNBIND_PATIENCE;
    while Instant::now() < deadline {
        // Another process may have bound the number anew as soon as it was free.
        if backing_file(number) != bound_to {
            return Ok(Outcome::Done);
        }
        thread::sleep(LOOK_EVERY);
    }
    let device = LoopDevice::open(number).map_err(|error| device_error("open", number, error))?;
    match device.stay_bound() {
        Ok(true) => {
            set_completion(number, Completion::OnTheCoreThatAsked);
            Err(busy("a process has it open; end that first (fuser shows which)"))
        }
        Ok(false) => Ok(Outcome::Done),
        Err(error) => Err(device_error("examine", number, error)),
    }
}

fn resize(file: &Path, number: u32) -> Result<Outcome, FuseError> {
    // Asking for the attributes makes the kernel learn the new size, which the device then takes.
    fs::metadata(file).map_err(|error| FuseError::at_path("examine", file, error))?;
    let device = LoopDevice::open(number).map_err(|error| device_error("open", number, error))?;
    device.update_size().map_err(|error| device_error("resize", number, error))?;
    Ok(Outcome::Done)
}

/// All loop devices on files below `mount_point`, whatever the files are called now.
fn list(mount_point: &Path) -> Result<Vec<Listed>, FuseError> {
    let entries = fs::read_dir("/sys/block").map_err(|error| {
        FuseError::at_path("list block devices in", "/sys/block".as_ref(), error)
    })?;
    let numbers = entries.filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.strip_prefix("loop")?.parse().ok()
    });
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    let ours = |number: &u32| {
        let file = backing_file(*number)?;
        file.starts_with(mount_point).then_some((*number, file))
    };
    let devices = numbers.iter().filter_map(ours);
    Ok(devices.filter_map(|(number, file)| examine(mount_point, number, file)).collect())
}

fn examine(mount_point: &Path, number: u32, file: PathBuf) -> Option<Listed> {
    let binding = LoopDevice::open(number).and_then(|device| device.binding());
    match (binding, fs::metadata(mount_point)) {
        // It was unbound just now.
        (Ok(None), _) => None,
        (Ok(Some(binding)), Ok(root)) if binding.file_system == root.dev() => {
            Some(Listed::Alive { number, node: binding.inode })
        }
        _ => Some(Listed::Dead { number, file }),
    }
}

/// The path of the file that a device was bound to, as it was then; asks nobody but the driver.
fn backing_file(number: u32) -> Option<PathBuf> {
    let mut path = fs::read(format!("/sys/block/loop{number}/loop/backing_file")).ok()?;
    if path.last() == Some(&b'\n') {
        path.pop();
    }
    Some(PathBuf::from(OsString::from_vec(path)))
}

/// Tells one binding of a loop device from every other: the kernel never gives such a number again.
/// `None` for a device that is not bound, and for kernels that do not tell.
pub(crate) fn sequence_of(number: u32) -> Option<u64> {
    backing_file(number)?;
    let text = fs::read_to_string(format!("/sys/block/loop{number}/diskseq")).ok()?;
    text.trim().parse().ok()
}

fn device_error(action: &str, number: u32, source: io::Error) -> FuseError {
    FuseError::at_path(action, &LoopDevice::path(number), source)
}

impl Outcome {
    pub(crate) fn format(outcome: &Result<Self, Refusal>) -> String {
        match outcome {
            Ok(Self::Done) => "done\n".into(),
            Ok(Self::Attached { number }) => format!("attached\t{number}\ndone\n"),
            Ok(Self::Listed(devices)) => {
                let lines = devices.iter().map(|device| match device {
                    Listed::Alive { number, node } => format!("alive\t{number}\t{node}\n"),
                    Listed::Dead { number, file } => {
                        format!("dead\t{number}\t{}\n", hex(file.as_os_str()))
                    }
                });
                lines.chain(["done\n".into()]).collect()
            }
            Err((kind, message)) => {
                format!("refused\t{}\t{}\n", kind_word(*kind), message.replace('\n', " "))
            }
        }
    }

    /// Understands what [`Outcome::format`] wrote. An answer without an end is an error.
    pub(crate) fn parse(answer: &str, errand: &Errand) -> Result<Self, FuseError> {
        let mut listed = Vec::new();
        let mut attached = None;
        let mut is_done = false;
        for line in answer.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            match words[..] {
                ["done"] => is_done = true,
                ["attached", number] => attached = number.parse().ok(),
                ["alive", number, node] => {
                    let parsed = number.parse().ok().zip(node.parse().ok());
                    listed.extend(parsed.map(|(number, node)| Listed::Alive { number, node }));
                }
                ["dead", number, file] => {
                    let parsed = number.parse().ok().zip(unhex(file));
                    listed.extend(parsed.map(|(number, file)| Listed::Dead { number, file }));
                }
                ["refused", kind, message] => {
                    return Err(FuseError::new(kind_of_word(kind), errand.to_string())
                        .with_source(io::Error::other(message.to_owned())));
                }
                _ => break,
            }
        }
        match (is_done, errand, attached) {
            (true, Errand::List { .. }, _) => Ok(Self::Listed(listed)),
            (true, Errand::Attach { .. }, Some(number)) => Ok(Self::Attached { number }),
            (true, Errand::Detach { .. } | Errand::Resize { .. } | Errand::SetCache { .. }, _) => {
                Ok(Self::Done)
            }
            _ => Err(FuseError::new(FuseErrorKind::Kernel, errand.to_string())
                .with_hint("the process that should have done it ended early")),
        }
    }
}

fn kind_word(kind: FuseErrorKind) -> &'static str {
    match kind {
        FuseErrorKind::Unavailable => "unavailable",
        FuseErrorKind::NotFound => "not-found",
        FuseErrorKind::Busy => "busy",
        FuseErrorKind::Holder => "holder",
        FuseErrorKind::Kernel => "kernel",
    }
}

fn kind_of_word(word: &str) -> FuseErrorKind {
    let kinds = [
        FuseErrorKind::Unavailable,
        FuseErrorKind::NotFound,
        FuseErrorKind::Busy,
        FuseErrorKind::Holder,
    ];
    kinds.into_iter().find(|&kind| kind_word(kind) == word).unwrap_or(FuseErrorKind::Kernel)
}

/// Paths may hold any byte, lines of words may not.
fn hex(path: &OsStr) -> String {
    path.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<PathBuf> {
    let digits = text.as_bytes().chunks(2);
    let bytes = digits.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    Some(PathBuf::from(OsString::from_vec(bytes.collect::<Option<_>>()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: DeviceShape = DeviceShape {
        sector_bytes: 512,
        write_cache: CacheMode::WriteThrough,
        access: Access::ReadOnly,
    };

    fn errands() -> [Errand; 6] {
        let mount_point = PathBuf::from("/run/volumes");
        let name = "db".to_owned();
        [
            Errand::Attach { mount_point: mount_point.clone(), name: name.clone(), shape: SHAPE },
            Errand::Detach { number: 3, sequence: None },
            Errand::Detach { number: 3, sequence: Some(17) },
            Errand::Resize { mount_point: mount_point.clone(), name, number: 3 },
            Errand::SetCache { number: 3, write_cache: CacheMode::WriteBack },
            Errand::List { mount_point },
        ]
    }

    #[track_caller]
    fn check_way(outcome: Result<Outcome, Refusal>, errand: &Errand) {
        let parsed = Outcome::parse(&Outcome::format(&outcome), errand);
        let parsed = parsed.map_err(|error| (error.kind, error.chain()));
        let expected = outcome.map_err(|(kind, why)| (kind, format!("cannot {errand}: {why}")));
        assert_eq!(parsed, expected);
    }

    #[test]
    fn errands_survive_the_way() {
        for errand in errands() {
            assert_eq!(Errand::from_args(&errand.to_args()), Some(errand));
        }
    }

    #[test]
    fn what_is_no_errand_is_refused() {
        for args in [&[][..], &["attach".into()], &["detach".into(), "x".into()]] {
            assert_eq!(Errand::from_args(args), None);
        }
    }

    #[test]
    fn outcomes_survive_the_way() {
        let [attach, detach, _, resize, set_cache, list] = errands();
        check_way(Ok(Outcome::Attached { number: 7 }), &attach);
        check_way(Ok(Outcome::Done), &detach);
        check_way(Ok(Outcome::Done), &resize);
        check_way(Ok(Outcome::Done), &set_cache);
        let alive = Listed::Alive { number: 1, node: 9 };
        let dead = Listed::Dead { number: 2, file: "/run/volumes/a\tb\n".into() };
        check_way(Ok(Outcome::Listed(vec![alive, dead])), &list);
    }

    #[test]
    fn refusals_survive_the_way() {
        for kind in [
            FuseErrorKind::Unavailable,
            FuseErrorKind::NotFound,
            FuseErrorKind::Busy,
            FuseErrorKind::Holder,
            FuseErrorKind::Kernel,
        ] {
            check_way(Err((kind, "why".into())), &errands()[0]);
        }
    }

    #[test]
    fn an_answer_without_an_end_is_an_error() {
        let [attach, .., list] = errands();
        for (answer, errand) in [("attached\t3\n", &attach), ("alive\t1\t2\n", &list), ("", &list)]
        {
            assert!(Outcome::parse(answer, errand).is_err(), "{answer:?}");
        }
    }

    #[test]
    fn attaching_a_file_that_is_not_there_says_so() {
        let errand =
            Errand::Attach { mount_point: "/nonexistent".into(), name: "db".into(), shape: SHAPE };
        let (kind, message) = errand.run().expect_err("there is no such file");
        assert_eq!(kind, FuseErrorKind::NotFound);
        assert!(message.contains("/nonexistent/db"), "{message}");
    }
}
