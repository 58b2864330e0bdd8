//! A daemon of its own for each test, and the command line that talks to it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// How long the daemon may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A daemon without kernel block devices, on a pool of 64 MiB. It ends with the test.
pub(crate) struct House {
    dir: TempDir,
    daemon: Option<Child>,
}

impl House {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let mut house = Self { dir, daemon: None };
        house.start();
        house
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("run/api.sock")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Starts the daemon and waits until it answers.
    pub(crate) fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.dir.path().join("log"));
        let mut daemon = self
            .daemon_command()
            .stderr(log.expect("a log"))
            .spawn()
            .expect("the daemon can be started");
        let begun = Instant::now();
        while !is_ready(&self.socket()) {
            let has_ended = daemon.try_wait().expect("it can be waited for").is_some();
            assert!(!has_ended && begun.elapsed() < PATIENCE, "no daemon: {}", self.log());
            std::thread::sleep(POLL_INTERVAL);
        }
        self.daemon = Some(daemon);
    }

    /// Runs a second daemon in the same place until it gives up.
    pub(crate) fn second_daemon(&self) -> Output {
        self.daemon_command().output().expect("the daemon can be started")
    }

    /// The same with a run directory and a pool of its own, but not the state.
    pub(crate) fn second_daemon_on_the_same_state(&self) -> Output {
        let mut command = self.daemon_command_with("other-run", "other-region");
        command.output().expect("the daemon can be started")
    }

    pub(crate) fn events_on_disk(&self) -> String {
        let path = self.dir.path().join("state/events.jsonl");
        std::fs::read_to_string(path).expect("the daemon has made it")
    }

    pub(crate) fn kill(&mut self) {
        let mut daemon = self.daemon.take().expect("the daemon runs");
        daemon.kill().expect("it can be killed");
        daemon.wait().expect("it can be waited for");
    }

    /// Asks the daemon to end, and returns its exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        let mut daemon = self.daemon.take().expect("the daemon runs");
        let id = i32::try_from(daemon.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(id, Signal::TERM).expect("it can be told");
        let begun = Instant::now();
        loop {
            if let Some(status) = daemon.try_wait().expect("it can be waited for") {
                return status.code();
            }
            if begun.elapsed() >= PATIENCE {
                daemon.kill().expect("it can be killed");
                panic!("the daemon does not end: {}", self.log());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Runs a command that must end with `exit_code`, and returns what it printed.
    #[track_caller]
    pub(crate) fn text(&self, words: &str, exit_code: i32) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_memlane"))
            .arg("--socket")
            .arg(self.socket())
            .args(words.split_whitespace())
            .output()
            .expect("the command line runs");
        assert_eq!(output.status.code(), Some(exit_code), "memlane {words}: {output:?}");
        let (silent, is_failure) = (output.stderr.is_empty(), exit_code != 0);
        let in_json = words.starts_with("--json");
        assert_eq!(silent, in_json || !is_failure, "memlane {words}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// A command that goes on beside the test.
    pub(crate) fn spawn(&self, words: &str) -> Child {
        Command::new(env!("CARGO_BIN_EXE_memlane"))
            .arg("--socket")
            .arg(self.socket())
            .args(words.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command line runs")
    }

    /// Runs as [`House::text`] does, with `--json`: exactly one JSON value is printed, also for an
    /// error.
    #[track_caller]
    pub(crate) fn json(&self, words: &str, exit_code: i32) -> Value {
        let text = self.text(&format!("--json {words}"), exit_code);
        serde_json::from_str(&text).expect("one JSON value")
    }

    fn daemon_command(&self) -> Command {
        self.daemon_command_with("run", "region")
    }

    fn daemon_command_with(&self, run_dir: &str, region: &str) -> Command {
        let path = self.dir.path();
        let mut command = Command::new(daemon_program());
        command
            .args(["--no-fuse", "--pool-size", "64MiB", "--journal-max-bytes", "16MiB"])
            .arg("--state-dir")
            .arg(path.join("state"))
            .arg("--run-dir")
            .arg(path.join(run_dir))
            .arg("--pool-path")
            .arg(path.join(region))
            .stdin(Stdio::null());
        command
    }
}

/// Both programs in one folder, as they are installed.
pub(crate) fn programs_in(folder: &Path) -> PathBuf {
    let programs = folder.join("bin");
    std::fs::create_dir(&programs).expect("a folder");
    // By another process: a program cannot start while a child of this one holds it open to write.
    let status = Command::new("cp")
        .args([Path::new(env!("CARGO_BIN_EXE_memlane")), daemon_program(), &programs])
        .status();
    assert!(status.expect("cp starts").success(), "cannot copy the programs");
    programs
}

/// Ctrl-C.
pub(crate) fn interrupt(child: &Child) {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(id, Signal::INT).expect("it can be told");
}

/// Whether the daemon at the socket says that it serves.
fn is_ready(socket: &Path) -> bool {
    let Ok(mut connection) = UnixStream::connect(socket) else { return false };
    let question = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut answer = [0; 12];
    let asked =
        connection.write_all(question.as_bytes()).and_then(|()| connection.read_exact(&mut answer));
    asked.is_ok() && answer == *b"HTTP/1.1 200"
}

impl Drop for House {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            self.kill();
        }
        let has_panicked = self.log().contains("panicked");
        assert!(!has_panicked || std::thread::panicking(), "the daemon: {}", self.log());
    }
}

/// The daemon: from the folder that `MEMLANE_BIN_DIR` names, or else of this build, which cargo
/// does not build for tests of another crate by itself.
fn daemon_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var_os("MEMLANE_BIN_DIR") {
        Some(folder) => Path::new(&folder).join("memlaned"),
        None => build_daemon(),
    })
}

fn build_daemon() -> PathBuf {
    let dir = Path::new(env!("CARGO_BIN_EXE_memlane")).parent().expect("a directory");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "daemon"]);
    if dir.ends_with("release") {
        build.arg("--release");
    }
    let built = build.status().expect("cargo runs");
    assert!(built.success(), "the daemon cannot be built");
    dir.join("memlaned")
}
