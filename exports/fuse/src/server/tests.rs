//! Tests of the server with messages as bytes, on a device in a vector.

mod allocation;

use std::cell::RefCell;
use std::sync::Mutex;
use std::time::Duration;

use block_device::{Action, Extent, Geometry, SectorSize};

use super::*;
use crate::files::{FileEntry, FileState};
use crate::request::parse;
use crate::request::tests::{
    Message, init_message, lookup_message, read_message, write_message, write_message_with,
};

const SIZE_BYTES: usize = 4 * BLOCK_BYTES;
const FILE: FileId = FileId(8);

/// A device of four blocks in a vector; all-zero blocks are holes.
struct VectorDevice {
    bytes: Mutex<Vec<u8>>,
    fails_with: Option<DeviceErrorKind>,
    is_read_only: bool,
    write_cache: WriteCache,
    calls: Mutex<Vec<(Action, ByteRange)>>,
}

impl VectorDevice {
    /// Creates a device whose second block is written; the others are holes.
    fn new() -> Self {
        let mut bytes = vec![0; SIZE_BYTES];
        bytes[BLOCK_BYTES..2 * BLOCK_BYTES].fill(b'x');
        Self {
            bytes: Mutex::new(bytes),
            fails_with: None,
            is_read_only: false,
            write_cache: WriteCache::Volatile,
            calls: Mutex::default(),
        }
    }

    fn check(&self, action: Action, start: u64, length: usize) -> Result<ByteRange, DeviceError> {
        let length = u64::try_from(length).expect("test ranges are short");
        let range = ByteRange::new(start, length);
        self.calls.lock().expect("no test panics with the lock").push((action, range));
        match self.fails_with {
            Some(kind) => Err(DeviceError::new(kind, action, range)),
            None if range.fits(self.geometry().size_bytes) => Ok(range),
            None => Err(DeviceError::new(DeviceErrorKind::OutOfRange, action, range)),
        }
    }

    fn with_bytes<T>(&self, range: ByteRange, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let start = usize::try_from(range.start).expect("a test offset");
        let length = usize::try_from(range.length).expect("a test length");
        work(&mut self.bytes.lock().expect("no test panics with the lock")[start..start + length])
    }
}

impl BlockDevice for VectorDevice {
    fn geometry(&self) -> Geometry {
        let size_bytes = u64::try_from(SIZE_BYTES).expect("a constant");
        Geometry { size_bytes, sector: SectorSize::Bytes512 }
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let range = self.check(Action::Read, offset_bytes, into.len())?;
        self.with_bytes(range, |bytes| into.copy_from_slice(bytes));
        Ok(())
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        let length = usize::try_from(range.length).expect("a test length");
        assert!(scratch.len() >= length && scratch.len().is_multiple_of(BLOCK_BYTES));
        self.check(Action::Read, range.start, length)?;
        self.with_bytes(range, |bytes| {
            let slices: Vec<_> = bytes.chunks(BLOCK_BYTES / 2).map(IoSlice::new).collect();
            visit(&slices);
        });
        Ok(())
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let range = self.check(Action::Write, offset_bytes, from.len())?;
        self.with_bytes(range, |bytes| bytes.copy_from_slice(from));
        Ok(())
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError> {
        let action = if zeroes == Zeroes::Unmap { Action::Discard } else { Action::WriteZeroes };
        let length = usize::try_from(range.length).expect("a test length");
        self.check(action, range.start, length)?;
        self.with_bytes(range, |bytes| bytes.fill(0));
        Ok(())
    }

    fn discard(&self, _: ByteRange) -> Result<(), DeviceError> {
        unreachable!("a discard of files must leave zeros")
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.check(Action::Flush, 0, 0).map(|_| ())
    }

    fn write_cache(&self) -> WriteCache {
        self.write_cache
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn extents(&self, range: ByteRange, _: usize) -> Result<Vec<Extent>, DeviceError> {
        // One block per call, to test that callers continue.
        let block = u64::try_from(BLOCK_BYTES).expect("a constant");
        let length = (block - range.start % block).min(range.length);
        let range = ByteRange::new(range.start, length);
        let is_hole = self.with_bytes(range, |bytes| bytes.iter().all(|&byte| byte == 0));
        let kind = if is_hole { ExtentKind::Hole } else { ExtentKind::Data };
        Ok(vec![Extent { range, kind }])
    }
}

/// One volume named `db` among others.
struct OneVolume {
    device: Arc<VectorDevice>,
}

impl Files for OneVolume {
    fn by_name(&self, name: &str) -> Option<(FileId, Arc<dyn BlockDevice>)> {
        (name == "db").then(|| (FILE, Arc::clone(&self.device) as Arc<dyn BlockDevice>))
    }

    fn by_id(&self, id: FileId) -> Option<Arc<dyn BlockDevice>> {
        (id == FILE).then(|| Arc::clone(&self.device) as Arc<dyn BlockDevice>)
    }

    fn state(&self, id: FileId) -> FileState {
        assert_eq!(id, FILE);
        FileState { data_bytes: 4097, modified: Duration::new(1_700_000_000, 5) }
    }

    fn list(&self) -> Vec<FileEntry> {
        let entry = |id, name: &str| FileEntry { id: FileId(id), name: name.into() };
        vec![entry(9, "a/b"), entry(FILE.0, "db"), entry(3, "first")]
    }
}

/// All replies that were sent.
#[derive(Default)]
struct Sent {
    replies: RefCell<Vec<Vec<u8>>>,
}

impl ReplySink for Sent {
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        self.replies.borrow_mut().push(parts.concat());
        Ok(())
    }
}

struct Bench {
    volume: OneVolume,
    counters: Counters,
    sent: Sent,
    open: OpenFiles,
}

impl Bench {
    fn new() -> Self {
        Self::on(VectorDevice::new())
    }

    fn failing_with(kind: DeviceErrorKind) -> Self {
        Self::on(VectorDevice { fails_with: Some(kind), ..VectorDevice::new() })
    }

    fn read_only() -> Self {
        let fails_with = Some(DeviceErrorKind::ReadOnly);
        Self::on(VectorDevice { fails_with, is_read_only: true, ..VectorDevice::new() })
    }

    fn without_write_cache() -> Self {
        let device = VectorDevice { write_cache: WriteCache::Absent, ..VectorDevice::new() };
        Self::on(device)
    }

    fn on(device: VectorDevice) -> Self {
        Self {
            volume: OneVolume { device: Arc::new(device) },
            counters: Counters::default(),
            sent: Sent::default(),
            open: OpenFiles::new(),
        }
    }

    fn server(&self) -> Server<'_> {
        Server {
            files: &self.volume,
            open: &self.open,
            counters: &self.counters,
            sink: &self.sent,
            before_wait: &|| (),
            flushed: &|_, _| (),
        }
    }

    /// Serves one message. Returns the error number and the body of the reply, if there is one.
    fn serve(&self, message: &[u8]) -> Option<(i32, Vec<u8>)> {
        let server = self.server();
        let (header, operation) = parse(message).expect("the message is whole");
        let mut scratch = vec![0xEE; SCRATCH_BYTES];
        let served = server.serve(header, &operation, &mut scratch);
        if let Some(flush) = served.expect("the sink takes everything") {
            server.serve_flushes(&[flush]).expect("the sink takes everything");
        }
        let reply = self.sent.replies.borrow_mut().pop()?;
        let stated = u32::from_ne_bytes(*reply.first_chunk().expect("a length"));
        assert_eq!(usize::try_from(stated), Ok(reply.len()), "the stated length");
        assert_eq!(reply[8..16], header.unique.to_ne_bytes(), "the request it answers");
        let error = i32::from_ne_bytes(*reply[4..].first_chunk().expect("an error number"));
        Some((error, reply[16..].to_vec()))
    }

    fn calls(&self) -> Vec<(Action, ByteRange)> {
        self.volume.device.calls.lock().expect("no test panics with the lock").clone()
    }

    fn traffic(&self) -> crate::Traffic {
        self.counters.traffic()
    }
}

/// Serves one message on a new bench and compares the error number.
#[track_caller]
fn check_error(message: &[u8], expected: i32) {
    let (error, _) = Bench::new().serve(message).expect("there is a reply");
    assert_eq!(error, -expected);
}

fn node() -> u64 {
    FILE.node()
}

fn allocate_message(offset: u64, length: u64, mode: u32) -> Vec<u8> {
    Message::new(43, node()).u64(0).u64(offset).u64(length).u32(mode).u32(0).build()
}

fn seek_message(offset: u64, whence: u32) -> Vec<u8> {
    Message::new(46, node()).u64(0).u64(offset).u32(whence).u32(0).build()
}

fn list_message(after: u64, bytes_max: u32) -> Vec<u8> {
    let body = Message::new(28, ROOT_NODE).u64(0).u64(after).u32(bytes_max);
    body.u32(0).u64(0).u64(0).build()
}

fn set_attributes_message(valid: u32, size: u64) -> Vec<u8> {
    Message::new(4, node()).u32(valid).u32(0).u64(0).u64(size).raw(&[0; 64]).build()
}

fn open_message(node: u64, flags: u32) -> Vec<u8> {
    Message::new(14, node).u32(flags).u32(0).build()
}

#[test]
fn a_read_returns_the_bytes_of_its_range() {
    let bench = Bench::new();
    let (error, body) = bench.serve(&read_message(node(), 4000, 200)).expect("a reply");
    assert_eq!(error, 0);
    assert_eq!(body, [vec![0; 96], vec![b'x'; 104]].concat());
    assert_eq!(bench.traffic(), crate::Traffic { reads: 1, read_bytes: 200, ..<_>::default() });
}

#[test]
fn a_read_of_many_slices_returns_them_in_order() {
    let (_, body) = Bench::new().serve(&read_message(node(), 0, 16_384)).expect("a reply");
    assert_eq!(body.len(), SIZE_BYTES);
    assert!(body[4096..8192].iter().all(|&byte| byte == b'x'));
}

#[test]
fn a_read_ends_at_the_end_of_the_file() {
    let (_, body) = Bench::new().serve(&read_message(node(), 16_000, 4096)).expect("a reply");
    assert_eq!(body.len(), 384);
    let (_, body) = Bench::new().serve(&read_message(node(), 1 << 40, 4096)).expect("a reply");
    assert!(body.is_empty());
}

#[test]
fn a_write_reaches_the_device() {
    let bench = Bench::new();
    let (error, body) = bench.serve(&write_message(node(), 512, b"data")).expect("a reply");
    assert_eq!((error, &body[..4]), (0, &4_u32.to_ne_bytes()[..]));
    let (_, body) = bench.serve(&read_message(node(), 512, 4)).expect("a reply");
    assert_eq!(body, b"data");
}

#[test]
fn a_write_past_the_end_is_too_big() {
    check_error(&write_message(node(), 16_384, b"data"), 27);
    check_error(&write_message(node(), u64::MAX, b"data"), 27);
}

#[test]
fn a_write_across_the_end_writes_what_fits() {
    let bench = Bench::new();
    let (error, body) = bench.serve(&write_message(node(), 16_382, b"data")).expect("a reply");
    assert_eq!((error, &body[..4]), (0, &2_u32.to_ne_bytes()[..]));
    let (_, body) = bench.serve(&read_message(node(), 16_380, 4096)).expect("a reply");
    assert_eq!(body, b"\0\0da");
    assert_eq!((bench.traffic().written_bytes, bench.traffic().errors), (2, 0));
}

#[test]
fn device_errors_become_error_numbers_and_are_counted() {
    let bench = Bench::failing_with(DeviceErrorKind::NoSpace);
    for message in [
        write_message(node(), 0, b"data"),
        read_message(node(), 0, 4),
        allocate_message(0, 4096, 3),
        Message::new(20, node()).u64(0).u64(0).build(),
    ] {
        let (error, body) = bench.serve(&message).expect("a reply");
        assert_eq!((error, body.len()), (-28, 0));
    }
    assert_eq!(bench.traffic().errors, 4);
}

#[test]
fn a_flush_reaches_the_device() {
    let bench = Bench::new();
    let message = Message::new(20, node()).u64(0).u64(0).build();
    assert_eq!(bench.serve(&message).expect("a reply").0, 0);
    assert_eq!(bench.calls(), [(Action::Flush, ByteRange::new(0, 0))]);
}

#[test]
fn a_write_with_fua_is_flushed() {
    let bench = Bench::new();
    let message = write_message_with(0o10_001, node(), 0, b"data");
    let (error, body) = bench.serve(&message).expect("a reply");
    assert_eq!((error, &body[..4]), (0, &4_u32.to_ne_bytes()[..]));
    let expected = [(Action::Write, ByteRange::new(0, 4)), (Action::Flush, ByteRange::new(0, 0))];
    assert_eq!(bench.calls(), expected);
}

/// Serves a request and returns its flush, with everything before it done.
fn flush_after(bench: &Bench, message: &[u8]) -> Option<Flush> {
    let (header, operation) = parse(message).expect("the message is whole");
    let mut scratch = vec![0; SCRATCH_BYTES];
    let served = bench.server().serve(header, &operation, &mut scratch);
    served.expect("the sink takes everything")
}

#[test]
fn a_flush_is_left_to_the_caller_with_everything_before_it_done() {
    let bench = Bench::new();
    let flush = |written_bytes| Flush {
        unique: 77,
        node: node(),
        written_bytes,
        may_wait: true,
        entry: None,
    };
    let sync = Message::new(20, node()).u64(0).u64(0).build();
    assert_eq!(flush_after(&bench, &sync), Some(flush(None)));
    assert_eq!(bench.calls(), []);
    let fua = |offset| write_message_with(0o10_001, node(), offset, b"data");
    assert_eq!(flush_after(&bench, &fua(0)), Some(flush(Some(4))));
    assert_eq!(bench.calls(), [(Action::Write, ByteRange::new(0, 4))]);
    assert_eq!(flush_after(&bench, &fua(16_384)), None);
    assert_eq!(bench.traffic().errors, 1);
    assert_eq!(flush_after(&bench, &write_message(node(), 0, b"data")), None);
    assert_eq!(flush_after(&bench, &read_message(node(), 0, 4)), None);
}

#[test]
fn a_flush_of_a_device_without_a_write_cache_never_waits() {
    let bench = Bench::without_write_cache();
    let message = Message::new(20, node()).u64(0).u64(0).build();
    assert!(flush_after(&bench, &message).is_some_and(|flush| !flush.may_wait));
    assert_eq!(bench.serve(&message).expect("a reply").0, 0);
    assert_eq!(bench.calls(), [(Action::Flush, ByteRange::new(0, 0))]);
}

/// Compares errors and bodies of the replies to a plain flush and to a write of four bytes.
#[track_caller]
fn check_flushes(bench: &Bench, expected: [(i32, &[u8]); 2]) {
    let [plain, written] = [None, Some(4)].map(|written_bytes| Flush {
        unique: 7,
        node: node(),
        written_bytes,
        may_wait: true,
        entry: None,
    });
    bench.server().serve_flushes(&[plain, written]).expect("the sink takes everything");
    let replies = bench.sent.replies.take();
    let answers = replies.iter().map(|reply| {
        let error = i32::from_ne_bytes(*reply[4..].first_chunk().expect("an error number"));
        (error, &reply[16..])
    });
    assert_eq!(answers.collect::<Vec<_>>(), expected);
    assert_eq!(bench.calls(), [(Action::Flush, ByteRange::new(0, 0))]);
}

#[test]
fn one_flush_answers_all_that_wait_for_it() {
    let bench = Bench::new();
    check_flushes(&bench, [(0, &[]), (0, &[4, 0, 0, 0, 0, 0, 0, 0])]);
    assert_eq!(bench.traffic(), crate::Traffic { flushes: 2, ..<_>::default() });
}

#[test]
fn a_flush_that_fails_fails_all_that_wait_for_it() {
    let bench = Bench::failing_with(DeviceErrorKind::NotDurable);
    check_flushes(&bench, [(-5, &[]), (-5, &[])]);
    assert_eq!(bench.traffic().errors, 2);
}

#[test]
fn seeking_finds_data_and_holes() {
    let found = |offset, whence| {
        let (error, body) = Bench::new().serve(&seek_message(offset, whence)).expect("a reply");
        body.first_chunk().map(|found| u64::from_ne_bytes(*found)).ok_or(-error)
    };
    assert_eq!(found(0, SEEK_DATA), Ok(4096));
    assert_eq!(found(5000, SEEK_DATA), Ok(5000));
    assert_eq!(found(5000, SEEK_HOLE), Ok(8192));
    assert_eq!(found(8192, SEEK_DATA), Err(6));
    assert_eq!(found(16_384, SEEK_HOLE), Err(6));
    assert_eq!(found(0, 9), Err(22));
}

#[test]
fn a_name_is_looked_up_in_the_directory_only() {
    let (error, body) = Bench::new().serve(&lookup_message("db")).expect("a reply");
    assert_eq!((error, &body[..8]), (0, &node().to_ne_bytes()[..]));
    check_error(&lookup_message("other"), 2);
    check_error(&Message::new(1, node()).raw(b"db\0").build(), 2);
    check_error(&Message::new(1, ROOT_NODE).raw(b"\xFF\0").build(), 2);
}

#[test]
fn attributes_tell_the_size_what_is_no_hole_and_when_it_changed() {
    let message = Message::new(3, node()).u32(0).u32(0).u64(0).build();
    let (_, body) = Bench::new().serve(&message).expect("a reply");
    assert_eq!(body[24..32], 16_384_u64.to_ne_bytes());
    assert_eq!(body[32..40], 9_u64.to_ne_bytes(), "in units of 512 bytes");
    assert_eq!(body[40..64], 1_700_000_000_u64.to_ne_bytes().repeat(3));
    assert_eq!(body[64..76], 5_u32.to_ne_bytes().repeat(3));
    check_error(&Message::new(3, ROOT_NODE).u32(0).u32(0).u64(0).build(), 0);
    check_error(&Message::new(3, 77).u32(0).u32(0).u64(0).build(), 2);
}

#[test]
fn sizes_owners_and_modes_are_not_changed_through_files() {
    check_error(&set_attributes_message(1 << 3, 0), 95);
    check_error(&set_attributes_message(1, 0), 1);
    check_error(&set_attributes_message(1 << 3, 16_384), 0);
    check_error(&set_attributes_message(1 << 4, 0), 0);
}

#[test]
fn files_are_opened_for_direct_parallel_access() {
    let (error, body) = Bench::new().serve(&open_message(node(), 2)).expect("one");
    assert_eq!((error, &body[8..12]), (0, &0x61_u32.to_ne_bytes()[..]));
}

#[test]
fn a_read_only_file_says_so_and_opens_for_reading_only() {
    let bench = Bench::read_only();
    let (_, body) = bench.serve(&lookup_message("db")).expect("a reply");
    assert_eq!(body[100..104], 0o100_400_u32.to_ne_bytes());
    let opened = |flags| bench.serve(&open_message(node(), flags)).expect("a reply").0;
    assert_eq!([0, 1, 2].map(opened), [0, -30, -30]);
    assert_eq!(bench.serve(&write_message(node(), 0, b"data")).expect("a reply").0, -30);
    assert_eq!(bench.serve(&allocate_message(0, 4096, 3)).expect("a reply").0, -30);
}

#[test]
fn a_file_that_is_gone_fails_its_users() {
    check_error(&read_message(77, 0, 512), 19);
    check_error(&write_message(77, 0, b"data"), 19);
    check_error(&open_message(77, 0), 19);
    check_error(&read_message(ROOT_NODE, 0, 512), 2);
}

/// Names and offsets in a directory listing.
fn names(mut listing: &[u8]) -> Vec<(String, u64)> {
    let mut names = Vec::new();
    while !listing.is_empty() {
        let next = u64::from_ne_bytes(*listing[8..].first_chunk().expect("a position"));
        let length = u32::from_ne_bytes(*listing[16..].first_chunk().expect("a length"));
        let end = 24 + usize::try_from(length).expect("a short name");
        names.push((String::from_utf8_lossy(&listing[24..end]).into_owned(), next));
        listing = &listing[end.next_multiple_of(8)..];
    }
    names
}

#[test]
fn a_listing_shows_files_by_number_and_leaves_out_odd_names() {
    let (_, body) = Bench::new().serve(&list_message(0, 4096)).expect("a reply");
    let shown: Vec<String> = names(&body).into_iter().map(|(name, _)| name).collect();
    assert_eq!(shown, [".", "..", "first", "db"]);
}

#[test]
fn a_listing_goes_on_where_it_stopped() {
    let (bench, mut shown, mut after) = (Bench::new(), Vec::new(), 0);
    loop {
        let (_, body) = bench.serve(&list_message(after, 40)).expect("a reply");
        let Some((name, next)) = names(&body).pop() else { break };
        shown.push(name);
        after = next;
    }
    assert_eq!(shown, [".", "..", "first", "db"]);
}

#[test]
fn the_terms_are_what_both_sides_know() {
    let everything = u64::MAX;
    let (error, body) = Bench::new().serve(&init_message(7, 45, everything)).expect("a reply");
    assert_eq!(error, 0);
    assert_eq!(body[4..8], 40_u32.to_ne_bytes());
    let low = u64::from(u32::from_ne_bytes(*body[12..].first_chunk().expect("flags")));
    let high = u64::from(u32::from_ne_bytes(*body[32..].first_chunk().expect("flags")));
    assert_eq!(high << 32 | low, init_flag::WANTED);
    let old = init_flag::MAX_PAGES | init_flag::ASYNC_READ;
    let (_, body) = Bench::new().serve(&init_message(7, 31, old)).expect("a reply");
    assert_eq!(body[4..8], 31_u32.to_ne_bytes());
    assert_eq!(body[32..36], [0; 4]);
}

#[test]
fn a_newer_kernel_is_told_our_version_and_an_older_one_is_refused() {
    let (error, body) = Bench::new().serve(&init_message(8, 0, u64::MAX)).expect("a reply");
    assert_eq!((error, &body[..4]), (0, &7_u32.to_ne_bytes()[..]));
    check_error(&init_message(7, 20, u64::MAX), 71);
    check_error(&init_message(7, 45, 0), 71);
}

#[test]
fn what_is_unknown_is_not_implemented_and_no_error() {
    let bench = Bench::new();
    assert_eq!(bench.serve(&Message::new(25, node()).build()).expect("a reply").0, -38);
    assert_eq!(bench.traffic().errors, 0);
}

#[test]
fn forgetting_and_interrupting_have_no_reply() {
    for opcode in [2, 42, 36] {
        assert_eq!(Bench::new().serve(&Message::new(opcode, node()).u64(1).build()), None);
    }
}

#[test]
fn closing_and_leaving_succeed() {
    for opcode in [18, 29, 30, 38] {
        check_error(&Message::new(opcode, node()).raw(&[0; 24]).build(), 0);
    }
}

#[test]
fn the_file_system_has_blocks_of_four_kibibytes() {
    let (_, body) = Bench::new().serve(&Message::new(17, ROOT_NODE).build()).expect("a reply");
    assert_eq!(body[40..44], 4096_u32.to_ne_bytes());
    assert_eq!(body[24..32], 3_u64.to_ne_bytes());
}
