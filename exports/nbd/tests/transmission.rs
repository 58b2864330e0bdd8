//! Requests of the transmission phase and their replies.

#[path = "support/faulty.rs"]
mod faulty;
mod support;
#[path = "support/talk.rs"]
mod talk;

use std::sync::Arc;

use block_device::{Action, BlockDevice, DeviceErrorKind};
use faulty::{Fault, FaultyDevice};
use nbd::Progress;
use support::{ExportTable, SparseDevice};
use talk::{Chunk, Reply, Request, Talk, command, errno, flag};

const SIZE: u64 = 40 << 20;
const MIB: u32 = 1 << 20;

/// A device and a session on it.
struct Bench {
    device: Arc<FaultyDevice>,
    talk: Talk,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Simple,
    Structured,
}

const BOTH: [Style; 2] = [Style::Simple, Style::Structured];

impl Bench {
    fn new(style: Style) -> Self {
        let device = Arc::new(FaultyDevice::new(SIZE));
        let export = Arc::clone(&device);
        let exports = Arc::new(ExportTable::new().with("e", export));
        let talk = match style {
            Style::Simple => Talk::simple(exports, "e"),
            Style::Structured => Talk::structured(exports, "e"),
        };
        Self { device, talk }
    }

    /// Sends a request and returns the replies. Not for reads with simple replies.
    fn ask(&mut self, request: Request, payload: &[u8]) -> Vec<Reply> {
        self.talk.send(&request.bytes());
        self.talk.send(payload);
        self.talk.received().replies()
    }

    #[track_caller]
    fn expect_done(&mut self, request: Request, payload: &[u8]) {
        let expected = [Reply::Simple { cookie: request.cookie, error: 0 }];
        assert_eq!(self.ask(request, payload), expected, "{request:?}");
    }

    #[track_caller]
    fn expect_error(&mut self, request: Request, payload: &[u8], expected: u32) {
        let replies = self.ask(request, payload);
        assert_eq!(replies.last().and_then(error_of), Some(expected), "{request:?}: {replies:?}");
        assert_eq!(self.talk.progress(), Progress::ReceiveInput, "the connection goes on");
    }

    #[track_caller]
    fn expect_chunks(&mut self, request: Request, expected: &[Chunk]) {
        let chunks: Vec<_> = self.ask(request, &[]).into_iter().map(chunk_of).collect();
        assert_eq!(chunks, expected, "{request:?}");
    }

    fn fault(&self, action: Action, at: u64, kind: DeviceErrorKind) {
        self.device.set_fault(Fault { action, at, kind });
    }
}

fn error_of(reply: &Reply) -> Option<u32> {
    match reply {
        Reply::Simple { error, .. } => Some(*error),
        Reply::Chunk { chunk: Chunk::Error { error, .. }, done: true, .. } => Some(*error),
        Reply::Chunk { .. } => None,
    }
}

fn chunk_of(reply: Reply) -> Chunk {
    match reply {
        Reply::Chunk { chunk, .. } => chunk,
        Reply::Simple { .. } => panic!("{reply:?} is no chunk"),
    }
}

fn request(command: u16, offset: u64, length: u32) -> Request {
    Request { command, offset, length, cookie: 0x0102_0304_0506_0708, flags: 0 }
}

fn flagged(flags: u16, request: Request) -> Request {
    Request { flags, ..request }
}

fn read(offset: u64, length: u32) -> Request {
    request(command::READ, offset, length)
}

fn write(offset: u64, length: u32) -> Request {
    request(command::WRITE, offset, length)
}

fn data(offset: u64, data: &[u8]) -> Chunk {
    Chunk::Data { offset, data: data.to_vec() }
}

fn hole(offset: u64, length: u32) -> Chunk {
    Chunk::Hole { offset, length }
}

/// Bytes that differ from their neighbours.
fn pattern(length: u32) -> Vec<u8> {
    (0..length).map(|index| (index % 251).to_le_bytes()[0]).collect()
}

#[test]
fn what_was_written_is_read_with_a_simple_reply() {
    let mut bench = Bench::new(Style::Simple);
    bench.expect_done(write(5, 3), b"abc");
    bench.talk.send(&read(4, 5).bytes());
    let mut received = bench.talk.received();
    assert_eq!(received.reply(), Reply::Simple { cookie: read(0, 0).cookie, error: 0 });
    assert_eq!(received.take(5), b"\0abc\0");
    assert!(received.is_empty());
}

#[test]
fn what_was_written_is_read_with_a_structured_reply() {
    let mut bench = Bench::new(Style::Structured);
    bench.expect_done(write(5, 3), b"abc");
    let chunk = data(4, b"\0abc\0");
    let expected = [Reply::Chunk { cookie: read(0, 0).cookie, done: true, chunk }];
    assert_eq!(bench.ask(read(4, 5), &[]), expected);
}

#[test]
fn a_long_simple_read_comes_in_one_piece() {
    let mut bench = Bench::new(Style::Simple);
    let bytes = pattern(5 * MIB + 7);
    bench.expect_done(write(1, 5 * MIB + 7), &bytes);
    bench.talk.send(&read(1, 5 * MIB + 7).bytes());
    let mut received = bench.talk.received();
    assert_eq!(received.reply(), Reply::Simple { cookie: read(0, 0).cookie, error: 0 });
    assert!(received.take(bytes.len()) == bytes);
    assert!(received.is_empty());
}

/// Reads with structured replies and reassembles the chunks.
#[track_caller]
fn check_assembled(bench: &mut Bench, request: Request, expected: &[u8]) -> Vec<Chunk> {
    let replies = bench.ask(request, &[]);
    let (last, inner) = replies.split_last().expect("there is a reply");
    assert!(matches!(last, Reply::Chunk { done: true, .. }));
    assert!(inner.iter().all(|reply| matches!(reply, Reply::Chunk { done: false, .. })));
    let chunks: Vec<_> = replies.into_iter().map(chunk_of).collect();
    let mut assembled = Vec::new();
    for chunk in &chunks {
        let at = request.offset + assembled.len() as u64;
        match chunk {
            Chunk::Data { offset, data } => {
                assert_eq!(*offset, at);
                assembled.extend(data);
            }
            Chunk::Hole { offset, length } => {
                assert_eq!(*offset, at);
                assembled.resize(assembled.len() + *length as usize, 0);
            }
            other => panic!("{other:?} in a read"),
        }
    }
    assert!(assembled == expected, "the chunks are what was written");
    chunks
}

#[test]
fn a_long_structured_read_comes_in_chunks() {
    let mut bench = Bench::new(Style::Structured);
    let bytes = pattern(32 * MIB);
    bench.expect_done(write(3, 32 * MIB), &bytes);
    let chunks = check_assembled(&mut bench, read(3, 32 * MIB), &bytes);
    assert!(chunks.len() > 32);
}

#[test]
fn holes_are_told_and_not_sent() {
    let mut bench = Bench::new(Style::Structured);
    bench.expect_done(write(128 << 10, 4096), &[7; 4096]);
    bench.expect_done(request(command::WRITE_ZEROES, 64 << 10, 4096), &[]);
    bench.expect_chunks(
        read(0, 256 << 10),
        &[hole(0, 128 << 10), data(128 << 10, &[7; 4096]), hole(132 << 10, 124 << 10)],
    );
}

#[test]
fn a_read_of_many_small_holes_is_whole() {
    let mut bench = Bench::new(Style::Structured);
    let mut bytes = vec![0; 3 << 20];
    for block in (0..(3 << 20) / 4096).step_by(2) {
        let filled = block * 4096..(block + 1) * 4096;
        bytes[filled.clone()].fill(9);
        bench.expect_done(write(filled.start as u64, 4096), &bytes[filled]);
    }
    check_assembled(&mut bench, read(0, 3 * MIB), &bytes);
}

#[test]
fn a_read_of_nothing_but_a_hole_sends_no_data() {
    let mut bench = Bench::new(Style::Structured);
    let chunks = check_assembled(&mut bench, read(1, 32 * MIB), &vec![0; 32 << 20]);
    assert!(chunks.iter().all(|chunk| matches!(chunk, Chunk::Hole { .. })));
}

#[test]
fn a_short_read_does_not_look_for_holes() {
    let mut bench = Bench::new(Style::Structured);
    bench.fault(Action::ListExtents, 0, DeviceErrorKind::Corrupt);
    bench.expect_chunks(read(0, 4096), &[data(0, &[0; 4096])]);
}

#[test]
fn an_unfragmented_read_comes_in_one_chunk() {
    let mut bench = Bench::new(Style::Structured);
    bench.expect_done(write(0, 1), b"a");
    let mut expected = vec![0; 1 << 20];
    expected[0] = b'a';
    bench.expect_chunks(flagged(flag::DF, read(0, MIB)), &[data(0, &expected)]);
}

#[test]
fn an_unfragmented_read_that_is_too_long_is_refused() {
    let mut bench = Bench::new(Style::Structured);
    bench.expect_error(flagged(flag::DF, read(0, MIB + 1)), &[], errno::EOVERFLOW);
}

#[test]
fn reads_that_are_too_long_are_refused() {
    Bench::new(Style::Simple).expect_error(read(0, 32 * MIB + 1), &[], errno::EINVAL);
    Bench::new(Style::Structured).expect_error(read(0, u32::MAX), &[], errno::EOVERFLOW);
}

#[test]
fn a_write_that_is_too_long_is_refused_with_its_payload_skipped() {
    for style in BOTH {
        let mut bench = Bench::new(style);
        let payload = vec![0x25; 33 << 20];
        bench.expect_error(write(0, 33 * MIB), &payload, errno::EINVAL);
        bench.expect_done(write(0, 1), b"a");
    }
}

#[test]
fn requests_behind_the_end_are_refused() {
    for style in BOTH {
        let mut bench = Bench::new(style);
        for (offset, length) in [(SIZE - 1, 2), (SIZE, 1), (u64::MAX, 1), (u64::MAX - 1, 4 * MIB)] {
            let payload = vec![0; length as usize];
            bench.expect_error(read(offset, length), &[], errno::EINVAL);
            bench.expect_error(write(offset, length), &payload, errno::ENOSPC);
            let zero = request(command::WRITE_ZEROES, offset, length);
            bench.expect_error(zero, &[], errno::ENOSPC);
            bench.expect_error(request(command::TRIM, offset, length), &[], errno::EINVAL);
            bench.expect_error(request(command::CACHE, offset, length), &[], errno::EINVAL);
            bench.expect_error(request(command::BLOCK_STATUS, offset, length), &[], errno::EINVAL);
        }
    }
}

#[test]
fn an_unknown_command_is_refused() {
    for style in BOTH {
        Bench::new(style).expect_error(request(99, 0, 0), &[], errno::EINVAL);
    }
}

#[test]
fn flags_that_a_command_does_not_take_are_refused() {
    for (command, wrong) in [
        (command::READ, flag::NO_HOLE),
        (command::WRITE, flag::NO_HOLE),
        (command::FLUSH, flag::DF),
        (command::TRIM, flag::FAST_ZERO),
        (command::CACHE, flag::REQ_ONE),
        (command::WRITE_ZEROES, flag::DF),
        (command::BLOCK_STATUS, flag::DF),
        (command::READ, 1 << 15),
    ] {
        let mut bench = Bench::new(Style::Structured);
        let payload: &[u8] = if command == command::WRITE { &[0; 4096] } else { &[] };
        let length = if command == command::FLUSH { 0 } else { 4096 };
        bench.expect_error(flagged(wrong, request(command, 0, length)), payload, errno::EINVAL);
    }
}

#[test]
fn an_unfragmented_read_needs_structured_replies() {
    let mut bench = Bench::new(Style::Simple);
    bench.expect_error(flagged(flag::DF, read(0, 1)), &[], errno::EINVAL);
}

#[test]
fn requests_of_no_bytes_do_nothing() {
    let mut bench = Bench::new(Style::Structured);
    for command in [command::WRITE, command::TRIM, command::WRITE_ZEROES, command::CACHE] {
        bench.expect_done(request(command, 0, 0), &[]);
        bench.expect_done(request(command, SIZE, 0), &[]);
    }
    bench.expect_chunks(read(0, 0), &[Chunk::Nothing]);
    bench.expect_chunks(flagged(flag::DF, read(SIZE, 0)), &[Chunk::Nothing]);
    Bench::new(Style::Simple).expect_done(read(0, 0), &[]);
}

#[test]
fn a_flush_reaches_the_device() {
    let mut bench = Bench::new(Style::Structured);
    bench.expect_done(request(command::FLUSH, 0, 0), &[]);
    assert_eq!(bench.device.flush_count(), 1);
}

#[test]
fn a_flush_of_a_part_is_refused() {
    let mut bench = Bench::new(Style::Structured);
    bench.expect_error(request(command::FLUSH, 1, 0), &[], errno::EINVAL);
    bench.expect_error(request(command::FLUSH, 0, 1), &[], errno::EINVAL);
    assert_eq!(bench.device.flush_count(), 0);
}

#[test]
fn changes_with_forced_unit_access_are_flushed() {
    for command in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
        let mut bench = Bench::new(Style::Structured);
        let payload: &[u8] = if command == command::WRITE { &[1; 512] } else { &[] };
        bench.expect_done(request(command, 0, 512), payload);
        assert_eq!(bench.device.flush_count(), 0);
        bench.expect_done(flagged(flag::FUA, request(command, 0, 512)), payload);
        assert_eq!(bench.device.flush_count(), 1);
    }
}

/// Checks the extents of the first 16 KiB.
#[track_caller]
fn check_status(bench: &mut Bench, flags: u16, expected: &[(u32, u32)]) {
    let status = flagged(flags, request(command::BLOCK_STATUS, 0, 16 << 10));
    bench.expect_chunks(status, &[Chunk::Status(expected.to_vec())]);
}

#[test]
fn block_status_tells_holes_zeroes_and_data() {
    let mut bench = Bench::new(Style::Structured);
    bench.expect_done(write(0, 4096), &[7; 4096]);
    bench.expect_done(write(8192, 4096), &[0; 4096]);
    check_status(&mut bench, 0, &[(4096, 0), (4096, 3), (4096, 2), (4096, 3)]);
    check_status(&mut bench, flag::REQ_ONE, &[(4096, 0)]);
}

/// Device with a write at 4096 before its snapshot 7, and one at 8192 after it.
fn device_with_snapshot() -> Arc<SparseDevice> {
    let device = Arc::new(SparseDevice::new(SIZE));
    device.write(4096, &[1; 4096]).expect("the device has space");
    device.take_snapshot(7, "monday");
    device.write(8192, &[2; 4096]).expect("the device has space");
    device
}

const SINCE_MONDAY: &str = "memlane:changed:monday";

#[test]
fn block_status_tells_what_changed_beside_what_is_allocated() {
    let device = device_with_snapshot();
    let exports = Arc::new(ExportTable::new().with("e", device));
    let contexts = ["base:allocation", SINCE_MONDAY];
    let mut talk = Talk::with_contexts(exports, "e", &contexts);
    let mut check = |flags, allocation: &[(u32, u32)], changes: &[(u32, u32)]| {
        let status = flagged(flags, request(command::BLOCK_STATUS, 0, 16 << 10));
        let cookie = status.cookie;
        talk.send(&status.bytes());
        let changes = Chunk::OtherStatus { context_id: 2, states: changes.to_vec() };
        let expected = [
            Reply::Chunk { cookie, done: false, chunk: Chunk::Status(allocation.to_vec()) },
            Reply::Chunk { cookie, done: true, chunk: changes },
        ];
        assert_eq!(talk.received().replies(), expected);
    };
    check(0, &[(4096, 3), (8192, 0), (4096, 3)], &[(8192, 0), (4096, 1), (4096, 0)]);
    check(flag::REQ_ONE, &[(4096, 3)], &[(8192, 0)]);
}

#[test]
fn changes_since_a_snapshot_that_is_gone_are_refused_even_if_another_has_its_name() {
    let device = device_with_snapshot();
    let exports = Arc::new(ExportTable::new().with("e", Arc::clone(&device) as _));
    let mut talk = Talk::with_contexts(exports, "e", &[SINCE_MONDAY]);
    device.delete_snapshot(7);
    device.take_snapshot(8, "monday");
    talk.send(&request(command::BLOCK_STATUS, 0, 4096).bytes());
    let replies = talk.received().replies();
    assert_eq!(replies.first().and_then(error_of), Some(errno::EINVAL));
}

#[test]
fn block_status_of_no_bytes_is_refused() {
    let mut bench = Bench::new(Style::Structured);
    bench.expect_error(request(command::BLOCK_STATUS, 0, 0), &[], errno::EINVAL);
}

#[test]
fn block_status_without_a_context_is_refused() {
    let mut bench = Bench::new(Style::Simple);
    bench.expect_error(request(command::BLOCK_STATUS, 0, 4096), &[], errno::EINVAL);
}

#[test]
fn block_status_has_a_bounded_number_of_extents() {
    let size = 2 * 8193 * 4096;
    let device = Arc::new(SparseDevice::new(size));
    for block in (0..size / 4096).step_by(2) {
        device.write(block * 4096, &[1; 4096]).expect("the device has space");
    }
    let exports = Arc::new(ExportTable::new().with("e", device));
    let mut talk = Talk::structured(exports, "e");
    let length = u32::try_from(size).expect("a small device");
    talk.send(&request(command::BLOCK_STATUS, 0, length).bytes());
    match chunk_of(talk.received().reply()) {
        Chunk::Status(extents) => assert_eq!(extents.len(), 8192),
        other => panic!("{other:?} is no status"),
    }
}

#[test]
fn trim_makes_a_hole() {
    let mut bench = Bench::new(Style::Structured);
    bench.expect_done(write(0, 16 << 10), &[7; 16 << 10]);
    bench.expect_done(request(command::TRIM, 4096, 8192), &[]);
    check_status(&mut bench, 0, &[(4096, 0), (8192, 3), (4096, 0)]);
}

#[test]
fn zeroes_are_a_hole_unless_the_client_wants_none() {
    let mut bench = Bench::new(Style::Structured);
    bench.expect_done(write(0, 16 << 10), &[7; 16 << 10]);
    bench.expect_done(request(command::WRITE_ZEROES, 0, 4096), &[]);
    let kept = flagged(flag::NO_HOLE | flag::FAST_ZERO, request(command::WRITE_ZEROES, 4096, 4096));
    bench.expect_done(kept, &[]);
    check_status(&mut bench, 0, &[(4096, 3), (4096, 2), (8192, 0)]);
}

#[test]
fn trims_and_zeroes_may_be_as_long_as_the_protocol_can_say() {
    let device = Arc::new(SparseDevice::new(8 << 30));
    device.write(4 << 20, &[1; 4096]).expect("the device has space");
    let export = Arc::clone(&device);
    let exports = Arc::new(ExportTable::new().with("e", export));
    let mut talk = Talk::structured(exports, "e");
    for command in [command::TRIM, command::WRITE_ZEROES] {
        talk.send(&request(command, 0, u32::MAX).bytes());
        let replies = talk.received().replies();
        assert_eq!(replies.first().and_then(error_of), Some(0));
    }
}

#[test]
fn a_read_only_export_refuses_changes() {
    let device = Arc::new(SparseDevice::new(SIZE).read_only());
    let exports = Arc::new(ExportTable::new().with("e", device));
    let mut talk = Talk::structured(exports, "e");
    for command in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
        talk.send(&request(command, 0, 4).bytes());
        if command == command::WRITE {
            talk.send(b"abcd");
        }
        let replies = talk.received().replies();
        assert_eq!(replies.first().and_then(error_of), Some(errno::EPERM));
    }
}

#[test]
fn what_the_device_says_is_passed_on() {
    for (action, kind, expected) in [
        (Action::Read, DeviceErrorKind::Corrupt, errno::EIO),
        (Action::Read, DeviceErrorKind::Gone, errno::ESHUTDOWN),
        (Action::Read, DeviceErrorKind::OutOfRange, errno::EINVAL),
        (Action::Write, DeviceErrorKind::NoSpace, errno::ENOSPC),
        (Action::Write, DeviceErrorKind::OutOfRange, errno::ENOSPC),
        (Action::WriteZeroes, DeviceErrorKind::NoSpace, errno::ENOSPC),
        (Action::Discard, DeviceErrorKind::Gone, errno::ESHUTDOWN),
        (Action::Write, DeviceErrorKind::ReadOnly, errno::EPERM),
        (Action::Flush, DeviceErrorKind::NotDurable, errno::EIO),
        (Action::ListExtents, DeviceErrorKind::Corrupt, errno::EIO),
    ] {
        let mut bench = Bench::new(Style::Structured);
        bench.fault(action, 0, kind);
        let (request, payload): (_, &[u8]) = match action {
            Action::Read => (read(0, 4), &[]),
            Action::Write => (write(0, 4), b"abcd"),
            Action::WriteZeroes => (request(command::WRITE_ZEROES, 0, 4), &[]),
            Action::Discard => (request(command::TRIM, 0, 4096), &[]),
            Action::Flush => (request(command::FLUSH, 0, 0), &[]),
            Action::ListExtents | Action::ListChanges => {
                (request(command::BLOCK_STATUS, 0, 4), &[])
            }
        };
        bench.expect_error(request, payload, expected);
    }
}

#[test]
fn an_error_comes_with_a_message_for_people() {
    let mut bench = Bench::new(Style::Structured);
    let message = "cannot write 1 bytes at byte 41943040: the export has 41943040 bytes".to_owned();
    let chunk = Chunk::Error { error: errno::ENOSPC, message };
    let cookie = write(0, 0).cookie;
    assert_eq!(bench.ask(write(SIZE, 1), b"a"), [Reply::Chunk { cookie, done: true, chunk }]);
}

#[test]
fn an_error_in_the_middle_of_a_structured_read_ends_it() {
    let mut bench = Bench::new(Style::Structured);
    bench.expect_done(write(0, 4 * MIB), &pattern(4 * MIB));
    bench.fault(Action::Read, 3 << 20, DeviceErrorKind::Corrupt);
    let replies = bench.ask(read(0, 4 * MIB), &[]);
    assert!(replies.len() > 3, "the good part is sent");
    assert_eq!(replies.last().and_then(error_of), Some(errno::EIO));
}

#[test]
fn an_error_at_the_start_of_a_simple_read_is_told() {
    let mut bench = Bench::new(Style::Simple);
    bench.fault(Action::Read, 1000, DeviceErrorKind::Corrupt);
    bench.expect_error(read(0, MIB), &[], errno::EIO);
}

#[test]
fn an_error_after_the_start_of_a_simple_read_ends_the_connection() {
    let mut bench = Bench::new(Style::Simple);
    bench.fault(Action::Read, 3 << 20, DeviceErrorKind::Corrupt);
    bench.talk.send(&read(0, 4 * MIB).bytes());
    assert_eq!(bench.talk.progress(), Progress::Close);
}

#[test]
fn a_long_write_that_fails_in_the_middle_is_an_error() {
    let mut bench = Bench::new(Style::Structured);
    bench.fault(Action::Write, 3 << 20, DeviceErrorKind::NoSpace);
    bench.expect_error(write(0, 4 * MIB), &pattern(4 * MIB), errno::ENOSPC);
}

#[test]
fn a_write_may_arrive_byte_by_byte() {
    let mut bench = Bench::new(Style::Structured);
    let bytes = pattern(5000);
    for byte in [&write(100, 5000).bytes(), bytes.as_slice()].concat() {
        bench.talk.send(&[byte]);
    }
    assert_eq!(bench.talk.received().replies().first().and_then(error_of), Some(0));
    bench.expect_chunks(read(100, 5000), &[data(100, &bytes)]);
}

#[test]
fn the_pieces_of_a_long_write_cut_no_block() {
    let mut bench = Bench::new(Style::Structured);
    bench.expect_done(write(1000, 4 * MIB), &pattern(4 * MIB));
    let writes = bench.device.writes();
    let (last, inner) = writes.split_last().expect("something was written");
    assert!(inner.len() > 4, "it came in pieces");
    assert!(inner.iter().all(|range| (range.start + range.length) % 4096 == 0), "{inner:?}");
    assert_eq!(last.start + last.length, 1000 + u64::from(4 * MIB));
}

#[test]
fn a_write_that_is_done_in_pieces_is_counted_once() {
    let mut bench = Bench::new(Style::Simple);
    bench.expect_done(flagged(flag::FUA, write(0, 4 * MIB)), &pattern(4 * MIB));
    let traffic = bench.talk.session().traffic();
    assert_eq!((traffic.writes, traffic.written_bytes), (1, 4 << 20));
    assert_eq!(bench.device.flush_count(), 1);
}

#[test]
fn requests_that_arrive_together_are_answered_in_order() {
    let mut bench = Bench::new(Style::Structured);
    let mut bytes = Vec::new();
    for cookie in 0..2000 {
        bytes.extend(Request { cookie, ..write(cookie * 512, 512) }.bytes());
        bytes.extend([u8::try_from(cookie % 256).expect("small"); 512]);
        bytes.extend(Request { cookie, ..read(cookie * 512, 512) }.bytes());
    }
    bench.talk.send(&bytes);
    let replies = bench.talk.received().replies();
    assert_eq!(replies.len(), 4000);
    for (cookie, pair) in (0..).zip(replies.chunks(2)) {
        let byte = u8::try_from(cookie % 256).expect("small");
        let chunk = data(cookie * 512, &[byte; 512]);
        assert_eq!(pair[0], Reply::Simple { cookie, error: 0 });
        assert_eq!(pair[1], Reply::Chunk { cookie, done: true, chunk });
    }
}

#[test]
fn a_disconnect_ends_the_connection_after_the_answers() {
    let mut bench = Bench::new(Style::Simple);
    let mut bytes = request(command::FLUSH, 0, 0).bytes();
    bytes.extend(request(command::DISCONNECT, 0, 0).bytes());
    bench.talk.send(&bytes);
    assert_eq!(bench.talk.received().replies().len(), 1);
    assert_eq!(bench.talk.progress(), Progress::Close);
}

#[test]
fn a_wrong_magic_number_ends_the_connection() {
    let mut bench = Bench::new(Style::Simple);
    bench.talk.send(&[0; 28]);
    assert_eq!(bench.talk.progress(), Progress::Close);
}

#[test]
fn requests_and_bytes_are_counted() {
    let mut bench = Bench::new(Style::Structured);
    bench.expect_done(write(0, 4096), &[1; 4096]);
    bench.expect_error(write(SIZE, 1), b"a", errno::ENOSPC);
    bench.expect_chunks(read(0, 512), &[data(0, &[1; 512])]);
    bench.expect_done(request(command::FLUSH, 0, 0), &[]);
    bench.expect_done(request(command::TRIM, 0, 4096), &[]);
    bench.expect_done(request(command::WRITE_ZEROES, 0, 4096), &[]);
    bench.ask(request(command::BLOCK_STATUS, 0, 4096), &[]);
    let expected = nbd::Traffic {
        reads: 1,
        writes: 2,
        flushes: 1,
        discards: 1,
        zeroes: 1,
        block_statuses: 1,
        errors: 1,
        read_bytes: 512,
        written_bytes: 4096,
        ..nbd::Traffic::default()
    };
    assert_eq!(bench.talk.session().traffic(), expected);
}
