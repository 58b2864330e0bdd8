//! Tests that loop devices of another mount namespace, whose backing files have the same paths,
//! neither delay a server nor are taken for its own.
//!
//! Requires what `kernel.rs` requires, and `unshare`.
#![forbid(unsafe_code)]

#[expect(dead_code, reason = "most of it is for kernel.rs")]
#[path = "support/fixture.rs"]
mod fixture;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use fixture::{Fixture, is_bound, run, tool};

const MIB: u64 = 1 << 20;

/// Replaces the mount and the directory of the fixture in this namespace, and runs a server there.
/// The shell is the first process of its namespace, so all others end with it.
const SCRIPT: &str = "umount \"$1/volumes\" && mount -t tmpfs none \"$1\" && mkdir \"$1/backing\" \
    && truncate -s 8M \"$1/backing/db.512\" && { \"$2\" \"$1\"; echo ended; sleep infinity; }";

/// A server of the same directory in mount and process namespaces of its own.
struct Stranger {
    namespaces: Child,
    answers: BufReader<ChildStdout>,
    device: PathBuf,
}

impl Stranger {
    /// Starts the server and attaches a volume.
    fn start(fixture: &Fixture) -> Self {
        let directory = fixture.mount_point().parent().expect("it has one").to_owned();
        let mut namespaces = Command::new("unshare")
            .args([
                "--mount",
                "--net",
                "--pid",
                "--mount-proc",
                "--fork",
                "--kill-child",
                "sh",
                "-c",
                SCRIPT,
                "sh",
            ])
            .arg(directory)
            .arg(fixture::SERVER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the tool is installed");
        let answers = BufReader::new(namespaces.stdout.take().expect("it was asked for"));
        let mut stranger = Self { namespaces, answers, device: PathBuf::new() };
        assert_eq!(stranger.read_answer(), "ready");
        let commands = stranger.namespaces.stdin.as_mut().expect("it was asked for");
        writeln!(commands, "attach db").expect("the server listens");
        let answer = stranger.read_answer();
        let device = answer.strip_prefix("ok ").expect("there is a free device");
        stranger.device = device.into();
        stranger
    }

    fn read_answer(&mut self) -> String {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the server answers");
        answer.trim_end().to_owned()
    }

    /// Ends the server as a kill does: its fd store keeps the connection, which nobody serves.
    fn end_server(&mut self) {
        drop(self.namespaces.stdin.take());
        assert_eq!(self.read_answer(), "ended");
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = tool("losetup").arg("--detach").arg(&self.device).status();
        self.namespaces.kill().expect("it is our child");
        self.namespaces.wait().expect("it is our child");
    }
}

/// Starts the server of the fixture anew beside a stranger, with and without its earlier
/// connection, and checks that it has its own device only.
#[track_caller]
fn check_starts(fixture: &mut Fixture, stranger: &Stranger) {
    let device = fixture.attach("db");
    for is_kept in [true, false] {
        if !is_kept {
            fixture.kill_holder();
        }
        fixture.kill();
        fixture.start();
        let origin = if is_kept { "ok TakenOver" } else { "ok Mounted" };
        assert_eq!(fixture.ask("origin"), origin);
        assert_eq!(fixture.ask("dead"), "ok 0");
        let expected = if is_kept { format!("ok db={}", device.display()) } else { "ok ".into() };
        assert_eq!(fixture.ask("attachments"), expected);
        let device = fixture.attach("db");
        assert_eq!(fixture.ask("attachments"), format!("ok db={}", device.display()));
        assert!(is_bound(&stranger.device), "the device of another server was removed");
    }
    assert_eq!(fixture.ask("detach db"), "ok ");
    assert!(is_bound(&stranger.device), "the device of another server was removed");
}

#[test]
fn a_device_that_is_served_in_another_namespace_is_left_alone() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let stranger = Stranger::start(&fixture);
    check_starts(&mut fixture, &stranger);
    run(tool("dd")
        .args(["iflag=direct", "count=1", "of=/dev/null", "status=none"])
        .arg(format!("if={}", stranger.device.display())));
}

#[test]
fn a_device_that_nobody_serves_in_another_namespace_delays_nothing() {
    let Some(mut fixture) = Fixture::build(&[("db", 512, 8 * MIB)]) else { return };
    let mut stranger = Stranger::start(&fixture);
    stranger.end_server();
    check_starts(&mut fixture, &stranger);
}
