//! Runs mount, mkfs and resize programs to completion. The gRPC call that runs one has a time
//! limit; the program has none.
//!
//! If the driver is killed, its program keeps running. To prevent the next driver from starting
//! another one for the same volume, the program inherits a lock on the device and holds it until it
//! exits.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tonic::Status;

/// Search path for administrative programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Attempts to lock a device, and the pause between them. The host's udev holds the lock briefly.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Exclusive lock on a block device, against other driver processes and udev.
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

    /// Runs a program that must succeed. The program holds the lock until it exits.
    pub(super) fn run<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<(), Status> {
        self.check(program, arguments, 0)
    }

    /// Runs a program that may also exit with `good_code`.
    pub(super) fn check<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
        good_code: i32,
    ) -> Result<(), Status> {
        let lock = self.0.try_clone();
        let lock = lock.map_err(|error| {
            Status::internal(format!("cannot duplicate a file descriptor: {error}"))
        })?;
        finish(program, arguments, Stdio::from(lock), good_code)
    }
}

/// Runs a program that must succeed. Its standard error becomes the error message.
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
