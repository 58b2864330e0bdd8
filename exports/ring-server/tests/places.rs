//! Places for clients: other users cannot take those of root, however many connections they hold.

mod support {
    pub(crate) mod storm;
}

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use shared_ring::{Answer, Target, receive_answer, send_request};
use support::storm::{GUEST, Ground, QUOTA, STRANGER};

/// Set for processes of other users: what they do, and the socket.
const ROLE: &str = "MEMLANE_TEST_ROLE";
const SOCKET: &str = "MEMLANE_TEST_SOCKET";

const SILENT_CONNECTIONS: usize = 600;

/// This program, started for another user.
struct Other {
    child: Child,
}

impl Other {
    /// `None` when this process may not become another user.
    fn start(uid: u32, role: &str, ground: &Ground) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: processes of other users take root");
            return None;
        }
        ground.open_to_everybody();
        // Where this program lies, others may not look; a copy could be busy, as any other thread
        // that starts a process holds the file that it is written by for an instant.
        let child = Command::new("/proc/self/exe")
            .args(["--exact", "the_role_of_another_user", "--nocapture"])
            .env(ROLE, role)
            .env(SOCKET, ground.socket())
            .current_dir("/")
            .uid(uid)
            .gid(uid)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        Some(Self { child })
    }

    /// Waits for a line that begins so, and returns the rest of it.
    #[track_caller]
    fn wait_for(&mut self, beginning: &str) -> String {
        let stdout = self.child.stdout.as_mut().expect("it was asked for");
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let found = lines.into_iter().find_map(|it| it.strip_prefix(beginning).map(str::to_owned));
        found.unwrap_or_else(|| panic!("the other user's process never said {beginning:?}"))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It ends with its input; an error says that it has ended.
        let _status = self.child.wait();
    }
}

fn connection(socket: &Path) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let descriptor = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let descriptor = descriptor.expect("a socket");
    let address = SocketAddrUnix::new(socket).expect("the path is short");
    connect(&descriptor, &address).expect("the server listens");
    descriptor
}

fn ask_for(socket: &Path, name: &str) -> Result<Answer, shared_ring::HandshakeError> {
    let socket = connection(socket);
    // One that was turned away may be closed by now, with the answer in it.
    let _sent = send_request(socket.as_fd(), &Target::Name(name.to_owned()), 1);
    receive_answer(socket.as_fd()).or_else(|_| receive_answer(socket.as_fd()))
}

/// Runs in processes of other users; does nothing elsewhere.
#[test]
fn the_role_of_another_user() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let socket = PathBuf::from(std::env::var_os(SOCKET).expect("it was set"));
    match role.as_str() {
        "silent" => {
            let held: Vec<OwnedFd> = (0..SILENT_CONNECTIONS).map(|_| connection(&socket)).collect();
            println_and_wait(&format!("holds {}", held.len()));
        }
        name => match ask_for(&socket, name).expect("an answer") {
            Answer::Opened(..) => println_and_wait("opened"),
            Answer::Refused { errno, message } => {
                println_and_wait(&format!("refused {errno} {message}"));
            }
        },
    }
}

/// Says something to the process that started this one, and waits for its end.
fn println_and_wait(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}").expect("the test reads it");
    out.flush().expect("the test reads it");
    let mut rest = String::new();
    std::io::stdin().read_line(&mut rest).expect("it ends");
}

#[track_caller]
fn check_silent_user(uid: u32, places_taken: usize) {
    let ground = Ground::new();
    let Some(mut other) = Other::start(uid, "silent", &ground) else { return };
    other.wait_for("holds 600");
    ground.check_good_client(1);
    assert_eq!(ground.server.status().handshakes, places_taken);
}

#[test]
fn a_user_who_may_use_nothing_takes_no_place() {
    check_silent_user(STRANGER, 0);
}

#[test]
fn a_user_who_may_use_something_takes_a_share_of_the_places() {
    check_silent_user(GUEST, QUOTA.per_user);
}

#[test]
fn a_user_who_may_use_nothing_is_refused_alike_whatever_there_is() {
    let ground = Ground::new();
    let answer = |name: &str| {
        let mut other = Other::start(STRANGER, name, &ground)?;
        Some(other.wait_for("refused "))
    };
    let (there, absent) = (answer("good"), answer("no-such-volume"));
    assert_eq!(there, absent);
    assert!(there.is_none_or(|it| it.contains("users=65534")));
}
