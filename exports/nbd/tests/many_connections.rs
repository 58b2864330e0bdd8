//! Clients among many connections: the lengths of pieces, and unchanged behaviour in the protocol.

#[path = "support/faulty.rs"]
mod faulty;
#[path = "support/running.rs"]
mod running;
mod support;
#[path = "support/talk.rs"]
mod talk;

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use block_device::{Action, BlockDevice, ByteRange, DeviceErrorKind};
use faulty::{Fault, FaultyDevice};
use nbd::{BufferShare, Config, Progress, Quota, TlsPolicy};
use running::{Client, Running, wait_until};
use support::ExportTable;
use talk::{Chunk, Reply, Request, Talk, command, errno, flag, option, option_bytes, rep};

const SIZE: u64 = 40 << 20;
const MIB: u32 = 1 << 20;
const COOKIE: u64 = 7;

/// Smallest number of clients that are served in small pieces.
const CLIENT_COUNT_MANY: usize = 25;

/// Maximum length of the pieces in which such requests are served.
const PIECE_BYTES_MAX: u64 = 68 << 10;

fn device() -> Arc<FaultyDevice> {
    let device = FaultyDevice::new(SIZE);
    device.write(0, &pattern(4 * MIB)).expect("the device has space");
    device.forget();
    Arc::new(device)
}

fn exports(device: &Arc<FaultyDevice>) -> Arc<ExportTable> {
    let export = Arc::clone(device);
    Arc::new(ExportTable::new().with("e", export))
}

fn simple(device: &Arc<FaultyDevice>) -> Talk {
    among_many(Talk::simple(exports(device), "e"))
}

fn structured(device: &Arc<FaultyDevice>) -> Talk {
    among_many(Talk::structured(exports(device), "e"))
}

fn among_many(mut talk: Talk) -> Talk {
    talk.set_share(BufferShare::Small);
    talk
}

/// Both shares with which requests are served in pieces.
const SHARES: [BufferShare; 2] = [BufferShare::Medium, BufferShare::Small];

/// Bytes of which no two blocks are equal.
fn pattern(length: u32) -> Vec<u8> {
    (0..length / 4).flat_map(u32::to_le_bytes).collect()
}

fn read(offset: u64, length: u32) -> Request {
    Request { command: command::READ, cookie: COOKIE, offset, length, flags: 0 }
}

fn write(offset: u64, length: u32) -> Request {
    Request { command: command::WRITE, ..read(offset, length) }
}

fn unfragmented(request: Request) -> Request {
    Request { flags: flag::DF, ..request }
}

fn fail_at(device: &FaultyDevice, action: Action, at: u64, kind: DeviceErrorKind) {
    device.set_fault(Fault { action, at, kind });
}

/// Checks that `ranges` are short and that no two of them share a block.
#[track_caller]
fn check_pieces(ranges: &[ByteRange]) {
    assert!(ranges.iter().all(|range| range.length <= PIECE_BYTES_MAX), "{ranges:?}");
    let inner = ranges.iter().zip(&ranges[1..]).filter(|(range, next)| next.start > range.start);
    let mut ends = inner.map(|(range, _)| range.start + range.length);
    assert!(ends.all(|end| end % 4096 == 0), "{ranges:?}");
}

#[test]
fn a_long_simple_read_is_done_in_pieces_that_cut_no_block() {
    let device = device();
    let mut talk = simple(&device);
    talk.send(&read(1000, 3 * MIB).bytes());
    let mut received = talk.received();
    assert_eq!(received.reply(), Reply::Simple { cookie: COOKIE, error: 0 });
    assert_eq!(received.take(3 << 20), &pattern(4 * MIB)[1000..1000 + (3 << 20)]);
    assert!(received.is_empty());
    check_pieces(&device.reads());
}

#[test]
fn an_unfragmented_read_is_done_in_pieces_and_still_comes_in_one_chunk() {
    let device = device();
    let mut talk = structured(&device);
    talk.send(&unfragmented(read(1000, MIB)).bytes());
    let data = pattern(4 * MIB)[1000..1000 + (1 << 20)].to_vec();
    let chunk = Chunk::Data { offset: 1000, data };
    let expected = [Reply::Chunk { cookie: COOKIE, done: true, chunk }];
    assert_eq!(talk.received().replies(), expected);
    check_pieces(&device.reads());
}

#[test]
fn a_long_structured_read_comes_in_chunks_that_cut_no_block() {
    let device = device();
    let mut talk = structured(&device);
    talk.send(&read(1000, MIB).bytes());
    let mut next = 1000;
    for reply in talk.received().replies() {
        let Reply::Chunk { chunk: Chunk::Data { offset, data }, done, .. } = reply else {
            panic!("{reply:?} has no data");
        };
        assert_eq!(offset, next as u64);
        assert_eq!(data, pattern(4 * MIB)[next..next + data.len()]);
        next += data.len();
        assert_eq!(done, next == 1000 + (1 << 20));
    }
    assert_eq!(next, 1000 + (1 << 20));
    check_pieces(&device.reads());
}

#[test]
fn an_error_in_a_later_piece_of_a_simple_read_is_told() {
    for share in SHARES {
        let device = device();
        let mut talk = simple(&device);
        talk.set_share(share);
        fail_at(&device, Action::Read, (1 << 20) - 1, DeviceErrorKind::Corrupt);
        talk.send(&read(0, MIB).bytes());
        let expected = [Reply::Simple { cookie: COOKIE, error: errno::EIO }];
        assert_eq!(talk.received().replies(), expected, "{share:?}");
        assert_eq!(talk.progress(), Progress::ReceiveInput, "the connection goes on");
    }
}

#[test]
fn an_error_in_a_later_piece_of_an_unfragmented_read_is_told() {
    for share in SHARES {
        let device = device();
        let mut talk = structured(&device);
        talk.set_share(share);
        fail_at(&device, Action::Read, (1 << 20) - 1, DeviceErrorKind::Corrupt);
        talk.send(&unfragmented(read(0, MIB)).bytes());
        let replies = talk.received().replies();
        let [Reply::Chunk { done: true, chunk: Chunk::Error { error, .. }, .. }] = &*replies else {
            panic!("{share:?}: {replies:?} is more than an error");
        };
        assert_eq!(*error, errno::EIO);
        assert_eq!(talk.progress(), Progress::ReceiveInput, "the connection goes on");
    }
}

/// Goal: when an error can no longer be reported, the server does not send wrong data.
/// Method: the device fails past the part that is read before success is promised.
#[test]
fn an_error_far_past_the_start_of_a_simple_read_ends_the_connection() {
    let device = device();
    let mut talk = simple(&device);
    fail_at(&device, Action::Read, 3 << 20, DeviceErrorKind::Corrupt);
    talk.send(&read(0, 4 * MIB).bytes());
    assert_eq!(talk.progress(), Progress::Close);
    assert!(talk.received().len() <= 16 + (3 << 20), "only good data is sent");
}

#[test]
fn an_error_in_a_later_piece_of_a_structured_read_ends_it() {
    let device = device();
    let mut talk = structured(&device);
    fail_at(&device, Action::Read, 100 << 10, DeviceErrorKind::Corrupt);
    talk.send(&read(0, MIB).bytes());
    let replies = talk.received().replies();
    assert_eq!(replies.len(), 4, "three chunks of 32 KiB are good");
    let Some(Reply::Chunk { done: true, chunk: Chunk::Error { error, .. }, .. }) = replies.last()
    else {
        panic!("the last is {:?}", replies.last());
    };
    assert_eq!(*error, errno::EIO);
}

#[test]
fn a_long_write_is_done_in_pieces_that_cut_no_block_and_flushed_once() {
    let device = device();
    let mut talk = simple(&device);
    talk.send(&Request { flags: flag::FUA, ..write(1000, MIB) }.bytes());
    talk.send(&pattern(MIB));
    assert_eq!(talk.received().replies(), [Reply::Simple { cookie: COOKIE, error: 0 }]);
    assert_eq!(device.flush_count(), 1);
    let writes = device.writes();
    check_pieces(&writes);
    assert_eq!(writes.iter().map(|range| range.length).sum::<u64>(), u64::from(MIB));
    let mut found = vec![0; MIB as usize];
    device.read(1000, &mut found).expect("the device is well");
    assert_eq!(found, pattern(MIB));
}

#[test]
fn a_write_that_fails_in_a_later_piece_is_an_error_and_is_not_flushed() {
    let device = device();
    let mut talk = simple(&device);
    fail_at(&device, Action::Write, 200 << 10, DeviceErrorKind::NoSpace);
    talk.send(&Request { flags: flag::FUA, ..write(0, MIB) }.bytes());
    talk.send(&pattern(MIB));
    let expected = [Reply::Simple { cookie: COOKIE, error: errno::ENOSPC }];
    assert_eq!(talk.received().replies(), expected);
    assert_eq!(device.flush_count(), 0);
    assert_eq!(talk.progress(), Progress::ReceiveInput, "the payload was skipped");
}

#[test]
fn the_longest_option_has_room_among_many() {
    let mut talk = among_many(Talk::in_options(exports(&device()), TlsPolicy::Absent));
    talk.send(&option_bytes(option::LIST, &vec![0; 64 << 10]));
    let replies = talk.received().option_replies();
    assert_eq!(replies.last().map(|reply| reply.kind), Some(rep::ERR_INVALID));
}

fn structured_client(running: &Running) -> Client<UnixStream> {
    let mut client = running.connect();
    client.greet();
    assert_eq!(client.ask(option::STRUCTURED_REPLY, &[]), rep::ACK);
    assert_eq!(client.ask(option::GO, &talk::export_query("e", &[])), rep::ACK);
    client
}

/// Length of the first chunk of a long read by one more client.
fn first_chunk_bytes(running: &Running) -> usize {
    let mut client = structured_client(running);
    client.send(&read(0, MIB).bytes());
    let header = client.receive(20);
    let payload_bytes = u32::from_be_bytes(header[16..].try_into().expect("four bytes"));
    payload_bytes as usize - 8
}

/// Goal: pieces are small only while there are many clients.
/// Method: connect one client more than longer pieces allow, then disconnect one.
#[test]
fn many_clients_are_served_in_small_pieces_until_some_have_gone() {
    let device = device();
    let running = Running::with(exports(&device), |config| Config {
        quota: Quota { total: CLIENT_COUNT_MANY, per_user: CLIENT_COUNT_MANY, reserved: 0 },
        ..config
    });
    let connected = || running.server.status().clients.get("e").copied().unwrap_or(0);
    let mut others: Vec<_> = (0..CLIENT_COUNT_MANY - 1).map(|_| running.connect_to("e")).collect();
    assert_eq!(first_chunk_bytes(&running), 32 << 10);
    others.pop();
    wait_until("two have gone", || connected() == CLIENT_COUNT_MANY - 2);
    assert_eq!(first_chunk_bytes(&running), 128 << 10);
}

/// Goal: a reply to a flush is not sent inside a chunk that is sent in pieces.
/// Method: flushes and long reads alternate, so that both threads of the connection send at the
/// same time.
#[test]
fn a_flush_is_not_answered_inside_a_chunk() {
    const TURN_COUNT: usize = 100;
    let device = device();
    let running = Running::with(exports(&device), |config| Config {
        quota: Quota { total: CLIENT_COUNT_MANY, per_user: CLIENT_COUNT_MANY, reserved: 0 },
        ..config
    });
    let _others: Vec<_> = (1..CLIENT_COUNT_MANY).map(|_| running.connect_to("e")).collect();
    let mut client = structured_client(&running);
    let flush = Request { command: command::FLUSH, ..Request::default() };
    for _ in 0..TURN_COUNT {
        client.send(&[flush.bytes(), unfragmented(read(0, MIB)).bytes()].concat());
    }
    let data = pattern(MIB);
    let mut read_count = 0;
    for _ in 0..2 * TURN_COUNT {
        let magic = u32::from_be_bytes(client.receive(4).try_into().expect("four bytes"));
        if magic == 0x6744_6698 {
            assert_eq!(client.receive(12), [0; 12]);
            continue;
        }
        assert_eq!(magic, 0x668e_33ef, "a reply begins");
        client.receive(16 + 8);
        assert!(client.receive(MIB as usize) == data, "the chunk has other data");
        read_count += 1;
    }
    assert_eq!(read_count, TURN_COUNT);
}
