//! Programs that mount, make and grow file systems, run to their end. The call that runs one is
//! waited for with a limit.
//!
//! A driver that is killed leaves its program behind. So that the next driver does not begin the
//! same beside it, the program holds the lock of the volume's device as long as it lives.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tonic::Status;

/// Where distributions keep programs for administrators.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How often the lock of a device is asked for, and the time between. The host's udev takes it for
/// moments.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// A block device that nobody else works on: neither another driver's program nor udev.
pub(super) struct Held(File);

impl Held {
    pub(super) fn of(device: &str) -> Result<Self, Status> {
        let path = Path::new(device);
        let file = File::open(path).map_err(|error| failed("open", path, &error))?;
        for _ in 0..LOCK_TRIES {
            if file.try_lock().is_ok() {
                return Ok(Self(file));
            }
            thread::sleep(LOCK_PAUSE);
        }
        Err(Status::aborted(format!("mkfs or mount of {device} is still running; retry later")))
    }

    /// A program that must succeed, and that holds the device as long as it lives.
    pub(super) fn run<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<(), Status> {
        self.check(program, arguments, 0)
    }

    /// The same of one that has also done well when it ends with this number.
    pub(super) fn check<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
        good_code: i32,
    ) -> Result<(), Status> {
        let lock = self.0.try_clone();
        let lock = lock.map_err(|error| Status::internal(format!("no descriptor: {error}")))?;
        finish(program, arguments, Stdio::from(lock), good_code)
    }
}

/// A program that must succeed; its complaint is the error.
pub(super) fn run<A: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Result<(), Status> {
    finish(program, arguments, Stdio::null(), 0)
}

fn finish<A: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = A>,
    input: Stdio,
    good_code: i32,
) -> Result<(), Status> {
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", PATH).env("LC_ALL", "C").stdin(input);
    let output = command
        .output()
        .map_err(|error| Status::internal(format!("cannot run {program}: {error}; install it")))?;
    if output.status.success() || output.status.code() == Some(good_code) {
        return Ok(());
    }
    let words: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    let said = String::from_utf8_lossy(&output.stderr).replace('\n', "; ");
    let said = said.trim_end_matches("; ");
    Err(Status::internal(format!(
        "{program} {} failed ({}): {said}",
        words.join(" "),
        output.status
    )))
}

pub(super) fn failed(doing: &str, path: &Path, error: &io::Error) -> Status {
    Status::internal(format!("cannot {doing} {}: {error}", path.display()))
}
