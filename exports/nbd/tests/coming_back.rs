//! Clients that reconnect and repeat unanswered requests: no older write may land after the
//! repeated one.

#[path = "support/faulty.rs"]
mod faulty;
#[path = "support/running.rs"]
mod running;
mod support;
#[path = "support/talk.rs"]
mod talk;

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use block_device::{Action, BlockDevice};
use faulty::FaultyDevice;
use nbd::Server;
use running::{Client, PATIENCE, Running, wait_until};
use support::ExportTable;
use talk::{Request, command, export_query, option, option_bytes, rep};

/// Time to wait for an answer that must not arrive.
const MOMENT: Duration = Duration::from_millis(200);

const WRITE: Request =
    Request { command: command::WRITE, length: 4096, flags: 0, offset: 4096, cookie: 1 };

/// Blocks a write inside the device, ends its connection, and reconnects. The new connection writes
/// the same block again once it is admitted.
#[track_caller]
fn check_coming_back(choose: u32, end: impl FnOnce(&Server, Client<UnixStream>)) {
    let device = Arc::new(FaultyDevice::new(1 << 20));
    let running = Running::new(Arc::new(ExportTable::new().with("db", Arc::clone(&device) as _)));
    let mut first = running.connect_to("db");
    device.hold(Action::Write);
    first.send(&[&WRITE.bytes()[..], &[1; 4096]].concat());
    wait_until("the first write", || device.writes().len() == 1);
    end(&running.server, first);

    let mut again = running.connect();
    again.greet();
    let asked = match choose {
        option::GO => export_query("db", &[]),
        _ => b"db".to_vec(),
    };
    // Followed by a request that must not be started either.
    let repetition = [&WRITE.bytes()[..], &[2; 4096]].concat();
    again.send(&[option_bytes(choose, &asked), repetition].concat());
    again.stream.set_read_timeout(Some(MOMENT)).expect("a time can be set");
    let early = again.stream.read(&mut [0]);
    let begun_count = device.writes().len();
    device.release();
    let early = early.expect_err("the first write may land yet");
    assert!(matches!(early.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{early}");
    assert_eq!(begun_count, 1, "the second write waits for the first one");

    again.stream.set_read_timeout(Some(PATIENCE)).expect("a time can be set");
    match choose {
        option::GO => assert_eq!(again.last_reply(), rep::ACK),
        _ => drop(again.receive(10)),
    }
    again.receive(16);
    let mut found = [0; 4096];
    device.read(WRITE.offset, &mut found).expect("no fault is set");
    assert!(found == [2; 4096], "the first write has landed after its repetition");
}

#[test]
fn a_client_that_was_disconnected_is_let_in_after_its_writes_have_left_the_device() {
    let disconnect = |server: &Server, first| {
        assert_eq!(server.disconnect("db"), 1);
        drop(first);
    };
    check_coming_back(option::GO, disconnect);
    check_coming_back(option::EXPORT_NAME, disconnect);
}

#[test]
fn a_client_that_has_gone_is_let_in_after_its_writes_have_left_the_device() {
    check_coming_back(option::GO, |_, first| drop(first));
    check_coming_back(option::GO, |_, first| {
        first.stream.shutdown(Shutdown::Write).expect("it is open");
        // Leave the socket open, like a host that no longer responds.
        std::mem::forget(first);
    });
}

#[test]
fn a_connection_that_goes_on_holds_up_no_other_one() {
    let device = Arc::new(FaultyDevice::new(1 << 20));
    let running = Running::new(Arc::new(ExportTable::new().with("db", Arc::clone(&device) as _)));
    let mut first = running.connect_to("db");
    device.hold(Action::Write);
    first.send(&[&WRITE.bytes()[..], &[1; 4096]].concat());
    wait_until("the first write", || device.writes().len() == 1);
    let mut second = running.connect_to("db");
    assert_eq!(second.request(Request { command: command::FLUSH, ..Request::default() }, &[]), 0);
    device.release();
    assert_eq!(first.receive(16)[4..8], [0; 4]);
}
