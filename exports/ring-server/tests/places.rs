//! Quota of connections: other users cannot exhaust the connections reserved for root.

mod support {
    pub(crate) mod storm;
}

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use shared_ring::{Answer, Target, receive_answer, send_request};
use support::storm::{Fixture, GUEST, QUOTA, STRANGER};

/// Many more connections than the quota allows. The descriptors of two tests are in one process.
const SILENT_CONNECTIONS: usize = 300;

/// Runs `act` as another user, on a thread of its own. Returns `None` if this process is not root.
fn act_as<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> Option<T> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return None;
    }
    let become_and_act = || {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
        set_thread_groups(&[]).expect("root may");
        set_thread_res_gid(group, group, group).expect("root may");
        set_thread_res_uid(user, user, user).expect("root may");
        act()
    };
    thread::scope(|scope| Some(scope.spawn(become_and_act).join().expect("it does not panic")))
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
    // A refused connection may be closed already, with the answer still readable.
    let _sent = send_request(socket.as_fd(), &Target::Name(name.to_owned()), 1);
    receive_answer(socket.as_fd()).or_else(|_| receive_answer(socket.as_fd()))
}

#[track_caller]
fn check_silent_user(uid: u32, places_taken: usize) {
    let fixture = Fixture::new();
    fixture.open_to_everybody();
    let socket = fixture.socket();
    let connect_often = || (0..SILENT_CONNECTIONS).map(|_| connection(&socket)).collect();
    let Some(held): Option<Vec<OwnedFd>> = act_as(uid, connect_often) else { return };
    fixture.check_good_client(1);
    assert_eq!(fixture.server.status().handshakes, places_taken);
    drop(held);
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
    let fixture = Fixture::new();
    fixture.open_to_everybody();
    let answer = |name: &str| match ask_for(&fixture.socket(), name).expect("an answer") {
        Answer::Opened(..) => panic!("a stranger has opened {name}"),
        Answer::Refused { errno, message } => (errno, message),
    };
    let both = || (answer("good"), answer("no-such-volume"));
    let Some((there, absent)) = act_as(STRANGER, both) else { return };
    assert_eq!(there, absent);
    assert!(there.1.contains("users=65534"), "{there:?}");
}
