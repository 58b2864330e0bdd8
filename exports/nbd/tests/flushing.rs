//! Slow flushes: requests that they delay, writes that they cover, and shutdown meanwhile.

#[path = "support/faulty.rs"]
mod faulty;
#[path = "support/running.rs"]
mod running;
mod support;
#[path = "support/talk.rs"]
mod talk;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use block_device::{Action, BlockDevice, DeviceErrorKind};
use faulty::{Fault, FaultyDevice};
use running::{Client, PATIENCE, Running, wait_until};
use support::ExportTable;
use talk::{Request, command, errno, flag};

const SIZE: u64 = 64 << 20;

/// Two devices whose flushes can be blocked.
struct Fixture {
    first: Arc<FaultyDevice>,
    running: Running,
}

impl Fixture {
    fn new() -> Self {
        let [first, second] = [(); 2].map(|()| Arc::new(FaultyDevice::new(SIZE)));
        let export = Arc::clone(&first);
        let table = ExportTable::new().with("first", export).with("second", second);
        Self { first, running: Running::new(Arc::new(table)) }
    }

    /// Connects a client with one flush in progress that does not return.
    fn client_that_flushes(&self) -> Client<UnixStream> {
        self.first.hold(Action::Flush);
        let mut client = self.running.connect_to("first");
        let begun = self.first.flush_count();
        client.send(&flush(FIRST_FLUSH).bytes());
        wait_until("a flush", || self.first.flush_count() == begun + 1);
        client
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.first.release();
    }
}

const FIRST_FLUSH: u64 = 1000;

fn flush(cookie: u64) -> Request {
    Request { command: command::FLUSH, cookie, ..Request::default() }
}

fn read(cookie: u64, offset: u64, length: u32) -> Request {
    Request { command: command::READ, cookie, offset, length, ..Request::default() }
}

fn write(cookie: u64, offset: u64, length: u32) -> Request {
    Request { command: command::WRITE, ..read(cookie, offset, length) }
}

fn fua(request: Request) -> Request {
    Request { flags: flag::FUA, ..request }
}

/// Receives the next simple reply. Returns its cookie and error.
fn reply<S: Read + Write>(client: &mut Client<S>) -> (u64, u32) {
    let bytes = client.receive(16);
    let cookie = u64::from_be_bytes(bytes[8..].try_into().expect("eight bytes"));
    (cookie, u32::from_be_bytes(bytes[4..8].try_into().expect("four bytes")))
}

#[test]
fn reads_and_writes_overtake_a_flush_on_their_own_connection() {
    let fixture = Fixture::new();
    let mut client = fixture.client_that_flushes();
    client.send(&[&write(1, 0, 4).bytes()[..], b"abcd"].concat());
    assert_eq!(reply(&mut client), (1, 0));
    client.send(&read(2, 0, 4).bytes());
    assert_eq!(reply(&mut client), (2, 0));
    assert_eq!(client.receive(4), b"abcd");
    fixture.first.release();
    assert_eq!(reply(&mut client), (FIRST_FLUSH, 0));
}

#[test]
fn flushes_that_come_during_another_one_share_the_next() {
    let fixture = Fixture::new();
    let mut client = fixture.client_that_flushes();
    client.send(&[flush(1).bytes(), flush(2).bytes()].concat());
    client.send(&[&fua(write(3, 0, 4)).bytes()[..], b"abcd"].concat());
    client.send(&fua(Request { command: command::TRIM, ..read(4, 0, 4096) }).bytes());
    let zeroes = Request { command: command::WRITE_ZEROES, ..read(5, 0, 4096) };
    client.send(&fua(zeroes).bytes());
    client.send(&read(6, 0, 0).bytes());
    assert_eq!(reply(&mut client), (6, 0));
    assert_eq!(fixture.first.flush_count(), 1);
    fixture.first.release();
    let cookies = [FIRST_FLUSH, 1, 2, 3, 4, 5];
    assert_eq!(cookies.map(|_| reply(&mut client)), cookies.map(|cookie| (cookie, 0)));
    assert_eq!(fixture.first.flush_count(), 2);
}

#[test]
fn a_fua_write_is_stored_before_it_is_flushed() {
    let fixture = Fixture::new();
    fixture.first.hold(Action::Flush);
    let mut client = fixture.running.connect_to("first");
    client.send(&[&fua(write(1, 0, 4)).bytes()[..], b"abcd"].concat());
    wait_until("a flush", || fixture.first.flush_count() == 1);
    assert_eq!(fixture.first.writes().len(), 1);
    fixture.first.release();
    assert_eq!(reply(&mut client), (1, 0));
}

#[test]
fn a_flush_that_fails_fails_everything_that_waited_for_it() {
    let fixture = Fixture::new();
    let mut client = fixture.client_that_flushes();
    client.send(&[flush(1).bytes(), fua(write(2, 0, 0)).bytes()].concat());
    client.send(&read(3, 0, 0).bytes());
    assert_eq!(reply(&mut client), (3, 0));
    let kind = DeviceErrorKind::NotDurable;
    fixture.first.set_fault(Fault { action: Action::Flush, at: 0, kind });
    fixture.first.release();
    for cookie in [FIRST_FLUSH, 1, 2] {
        assert_eq!(reply(&mut client), (cookie, errno::EIO));
    }
    assert_eq!(fixture.running.server.status().traffic.errors, 3);
    fixture.first.clear_fault();
    assert_eq!(client.request(flush(4), &[]), 0);
}

#[test]
fn other_connections_are_served_while_a_flush_does_not_end() {
    let fixture = Fixture::new();
    let _stuck = fixture.client_that_flushes();
    let mut neighbour = fixture.running.connect_to("first");
    assert_eq!(neighbour.request(write(1, 0, 4), b"abcd"), 0);
    let mut other = fixture.running.connect_to("second");
    assert_eq!(other.request(flush(1), &[]), 0);
}

#[test]
fn more_flushes_than_may_wait_are_refused() {
    let fixture = Fixture::new();
    let mut client = fixture.client_that_flushes();
    let requests: Vec<u8> = (0..1025).flat_map(|cookie| flush(cookie).bytes()).collect();
    client.send(&requests);
    assert_eq!(reply(&mut client), (1024, errno::ENOMEM));
    fixture.first.release();
    assert_eq!(reply(&mut client), (FIRST_FLUSH, 0));
    for cookie in 0..1024 {
        assert_eq!(reply(&mut client), (cookie, 0));
    }
    assert_eq!(fixture.first.flush_count(), 2);
}

/// Goal: the reply to a flush is not sent inside the data of a simple reply.
/// Method: the client requests more data than its socket buffers, and reads none before the flush
/// has ended.
#[test]
fn a_long_reply_is_not_interrupted() {
    let fixture = Fixture::new();
    let length = 32 << 20;
    fixture.first.write(0, &vec![7; length]).expect("the device has space");
    let mut client = fixture.client_that_flushes();
    client.send(&read(1, 0, 32 << 20).bytes());
    wait_until("the read", || fixture.running.server.status().traffic.reads == 1);
    fixture.first.release();
    let mut third = fixture.running.connect_to("first");
    assert_eq!(third.request(flush(2), &[]), 0);
    // Replies may come in any order, but each must be whole.
    let mut cookies = Vec::new();
    while cookies.len() < 2 {
        let (cookie, error) = reply(&mut client);
        assert_eq!(error, 0);
        if cookie == 1 {
            assert!(client.receive(length).iter().all(|&byte| byte == 7));
        }
        cookies.push(cookie);
    }
    cookies.sort_unstable();
    assert_eq!(cookies, [1, FIRST_FLUSH]);
}

#[test]
fn a_client_that_disconnects_is_told_the_end_of_its_flush_first() {
    let fixture = Fixture::new();
    let mut client = fixture.client_that_flushes();
    client.send(&Request { command: command::DISCONNECT, ..Request::default() }.bytes());
    fixture.first.release();
    assert_eq!(reply(&mut client), (FIRST_FLUSH, 0));
    assert!(client.is_closed());
}

#[test]
fn a_flush_outlives_its_client() {
    let fixture = Fixture::new();
    drop(fixture.client_that_flushes());
    assert_eq!(fixture.running.server.status().clients["first"], 1);
    fixture.first.release();
    wait_until("the end", || fixture.running.server.status().clients.is_empty());
}

#[test]
fn a_server_stops_although_a_flush_does_not_end() {
    let device = Arc::new(FaultyDevice::new(SIZE));
    let export = Arc::clone(&device);
    let running = Running::new(Arc::new(ExportTable::new().with("first", export)));
    device.hold(Action::Flush);
    let mut client = running.connect_to("first");
    client.send(&flush(1).bytes());
    wait_until("a flush", || device.flush_count() == 1);
    assert_eq!(running.server.stop(Duration::from_millis(50)), 1);
    assert!(client.is_closed());
    device.release();
    wait_until("the end of the thread", || Arc::strong_count(&device) == 1);
}

#[test]
fn a_server_that_stops_answers_the_flushes_that_end_in_time() {
    let device = Arc::new(FaultyDevice::new(SIZE));
    let export = Arc::clone(&device);
    let running = Running::new(Arc::new(ExportTable::new().with("first", export)));
    device.hold(Action::Flush);
    let mut client = running.connect_to("first");
    client.send(&flush(1).bytes());
    wait_until("a flush", || device.flush_count() == 1);
    let stopping = std::thread::spawn(|| running.server.stop(PATIENCE));
    device.release();
    assert_eq!(reply(&mut client), (1, 0));
    assert_eq!(stopping.join().expect("it stops"), 0);
}
