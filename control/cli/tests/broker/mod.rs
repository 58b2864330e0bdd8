//! Fixture: a broker for each test, with its own pool, and the command line as its client.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A running broker. It ends with the test.
pub(crate) struct Broker {
    process: Child,
    address: String,
    sql_address: String,
    /// Thread that reads the log and returns the last panic message, if any.
    panic: Option<JoinHandle<Option<String>>>,
}

impl Broker {
    /// Starts the broker and waits until it is ready.
    pub(crate) fn new() -> Self {
        Self::with_join_delay("0")
    }

    /// Starts a broker whose groups wait so many milliseconds for further members.
    pub(crate) fn with_join_delay(delay: &str) -> Self {
        let mut process = Command::new(broker_program())
            .args(["--embedded", "128MiB", "--listen", "127.0.0.1:0"])
            .args(["--anonymous", "loopback", "--group-initial-rebalance-delay", delay])
            .args(["--sql", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the broker can be started");
        let mut log = BufReader::new(process.stderr.take().expect("it is piped")).lines();
        let mut address_after = |words| {
            let found = log
                .by_ref()
                .find_map(|line| Some(line.expect("text").split_once(words)?.1.to_owned()));
            found.expect("the broker says where it serves")
        };
        let sql_address = address_after(": SQL at ");
        let address = address_after(": ready at ");
        // The log must be read, because a full pipe would block the broker.
        let panic = thread::spawn(move || {
            let panics = log.map_while(Result::ok).filter(|line| line.contains("panicked"));
            panics.last()
        });
        Self { process, address, sql_address, panic: Some(panic) }
    }

    /// Runs a command with this input, which must exit with `exit_code`.
    #[track_caller]
    pub(crate) fn feed(&self, words: &str, input: &str, exit_code: i32) -> String {
        let mut process = self.spawn(words);
        let mut stdin = process.stdin.take().expect("it is piped");
        // A command that fails early does not read its input.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = process.wait_with_output().expect("it ends");
        finished(words, output, exit_code)
    }

    /// Runs a command that must fail, and returns its error message.
    #[track_caller]
    #[allow(dead_code, reason = "not every suite looks at complaints")]
    pub(crate) fn complaint(&self, words: &str, input: &str) -> String {
        let mut process = self.spawn(words);
        let mut stdin = process.stdin.take().expect("it is piped");
        // A command that fails early does not read its input.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = process.wait_with_output().expect("it ends");
        assert!(!output.status.success(), "memlane {words}: {output:?}");
        String::from_utf8(output.stderr).expect("text")
    }

    #[track_caller]
    pub(crate) fn text(&self, words: &str, exit_code: i32) -> String {
        self.feed(words, "", exit_code)
    }

    #[track_caller]
    pub(crate) fn json(&self, words: &str, exit_code: i32) -> Value {
        let text = self.text(&format!("{words} --json"), exit_code);
        serde_json::from_str(&text).expect("one JSON value")
    }

    /// Sends a signal to the broker.
    #[allow(dead_code, reason = "not every suite stops the broker")]
    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        kill_process(id.expect("a process"), signal).expect("it can be told");
    }

    /// Starts a command in the background.
    pub(crate) fn spawn(&self, words: &str) -> Child {
        self.spawn_with(&words.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn spawn_with(&self, words: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_memlane"))
            .args(words)
            .env("MEMLANE_BROKER", &self.address)
            .env("MEMLANE_SQL", &self.sql_address)
            .env_remove("MEMLANE_BROKER_USER")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command line runs")
    }
}

#[track_caller]
pub(crate) fn finished(words: &str, output: Output, exit_code: i32) -> String {
    assert_eq!(output.status.code(), Some(exit_code), "memlane {words}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it can be waited for");
        let panic = self.panic.take().and_then(|it| it.join().expect("it only reads"));
        assert!(panic.is_none() || thread::panicking(), "the broker: {panic:?}");
    }
}

/// Path of the broker: in the folder `MEMLANE_BIN_DIR`, or from this build. Cargo does not build it
/// for tests of another crate.
fn broker_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var_os("MEMLANE_BIN_DIR") {
        Some(folder) => Path::new(&folder).join("memlane-broker"),
        None => build_broker(),
    })
}

fn build_broker() -> PathBuf {
    let dir = Path::new(env!("CARGO_BIN_EXE_memlane")).parent().expect("a directory");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "broker"]);
    if dir.ends_with("release") {
        build.arg("--release");
    }
    let built = build.status().expect("cargo runs");
    assert!(built.success(), "the broker cannot be built");
    dir.join("memlane-broker")
}
