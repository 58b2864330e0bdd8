//! Clients that reconnect and repeat unanswered requests: no older write may land after the
//! repeated one.

mod support {
    pub(crate) mod storm;
}

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use block_device::BlockDevice;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use shared_ring::{Answer, HandshakeError, Target, operation, receive_answer, send_request};
use support::storm::{Fixture, PATIENCE, Raw};

/// Time to wait for an answer that must not arrive.
const MOMENT: Duration = Duration::from_millis(200);

/// Blocks a write inside the device, ends its connection, and reconnects.
#[track_caller]
fn check_coming_back(is_away: bool, end: impl FnOnce(&Fixture, Raw)) {
    let fixture = Fixture::new();
    let device = &fixture.hostile;
    device.is_away.store(is_away, Ordering::Relaxed);
    device.hold_writes(true);
    let first = fixture.open("hostile");
    first.store_entry(0, operation::WRITE, 0, [4096, 4096]);
    first.ring();
    let start = Instant::now();
    while device.write_count.load(Ordering::Relaxed) == 0 {
        assert!(start.elapsed() < PATIENCE, "the write begins");
        thread::yield_now();
    }
    end(&fixture, first);

    let again = fixture.connect();
    send_request(again.as_fd(), &Target::Name("hostile".to_owned()), 1).expect("it is sent");
    set_socket_timeout(&again, Timeout::Recv, Some(MOMENT)).expect("a time can be set");
    let early = receive_answer(again.as_fd()).expect_err("the first write may land yet");
    assert!(matches!(early, HandshakeError::Socket(_)), "{early}");

    set_socket_timeout(&again, Timeout::Recv, Some(PATIENCE)).expect("a time can be set");
    device.volume.write(4096, &[2; 4096]).expect("another way to the volume");
    device.hold_writes(false);
    let answer = receive_answer(again.as_fd()).expect("an answer");
    assert!(matches!(answer, Answer::Opened(..)), "{answer:?}");
    let mut found = [0; 4096];
    device.volume.read(4096, &mut found).expect("it is there");
    assert!(found == [0; 4096], "the first write has landed before the client is let in");
}

fn disconnect(fixture: &Fixture, first: Raw) {
    assert_eq!(fixture.server.disconnect(2), 1);
    drop(first);
}

#[test]
fn a_client_that_was_disconnected_is_let_in_after_its_writes_have_left_the_device() {
    check_coming_back(false, disconnect);
    check_coming_back(true, disconnect);
}

#[test]
fn a_client_that_has_gone_is_let_in_after_its_writes_have_left_the_device() {
    check_coming_back(false, |_, first| drop(first));
    check_coming_back(true, |_, first| drop(first));
}

#[test]
fn a_client_that_broke_the_rules_is_let_in_after_its_writes_have_left_the_device() {
    check_coming_back(true, |_, first| {
        first.store_entry(1, operation::WRITE, 0, [4096, 4096]);
        first.ring();
        first.wait_for_end();
    });
}
