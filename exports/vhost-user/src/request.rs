//! One virtio-blk request, copied out of guest memory and validated.

use block_device::ByteRange;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID,
    VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};
use vm_memory::{Address, GuestAddress, GuestMemory, Permissions};

use crate::chain::{Chain, Malformed, Segment};
use crate::disk::{SECTOR_BYTES, SPAN_BYTES_MAX, SPAN_COUNT_MAX};
use crate::memory::Ram;

/// Length of the serial number that a driver reads.
pub(crate) const SERIAL_BYTES: usize = VIRTIO_BLK_ID_BYTES as usize;

const HEADER_BYTES: usize = 16;
const SPAN_BYTES: usize = 16;

/// `VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP`: zeroing may deallocate.
const UNMAP: u32 = 1;

/// A range of a discard or write-zeroes request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) range: ByteRange,
    pub(crate) may_unmap: bool,
}

/// Operation of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Operation {
    Read(ByteRange),
    Write(ByteRange),
    Flush,
    Identify,
    Discard(Vec<Span>),
    WriteZeroes(Vec<Span>),
    /// Unknown request type.
    #[default]
    Unsupported,
    /// Invalid request, with the reason.
    Invalid(&'static str),
}

/// A request, with the buffers of its data and the address of its status byte.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) operation: Operation,
    pub(crate) data: Vec<Segment>,
    pub(crate) status: GuestAddress,
}

impl Request {
    /// Decodes the request in `chain`. All its buffers are checked to be inside `ram`.
    pub(crate) fn read(&mut self, ram: &Ram, chain: &Chain) -> Result<(), Malformed> {
        let mut header = [0; HEADER_BYTES];
        let mut readable = Cursor::new(&chain.readable);
        if readable.copy_in(ram, &mut header)? < HEADER_BYTES {
            return Err(Malformed::Incomplete);
        }
        let [k0, k1, k2, k3, _, _, _, _, s0, s1, s2, s3, s4, s5, s6, s7] = header;
        let kind = u32::from_le_bytes([k0, k1, k2, k3]);
        let sector = u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
        self.data.clear();
        self.data.extend_from_slice(&chain.writable);
        self.status = take_last_byte(&mut self.data).ok_or(Malformed::Incomplete)?;
        check_inside(ram, self.status, 1, Permissions::Write)?;
        self.operation = match kind {
            VIRTIO_BLK_T_IN => {
                check_all_inside(ram, &self.data, Permissions::Write)?;
                transfer(sector, &self.data).map_or_else(Operation::Invalid, Operation::Read)
            }
            VIRTIO_BLK_T_OUT => {
                self.data.clear();
                readable.rest(&mut self.data);
                check_all_inside(ram, &self.data, Permissions::Read)?;
                transfer(sector, &self.data).map_or_else(Operation::Invalid, Operation::Write)
            }
            VIRTIO_BLK_T_FLUSH => Operation::Flush,
            VIRTIO_BLK_T_GET_ID => {
                check_all_inside(ram, &self.data, Permissions::Write)?;
                Operation::Identify
            }
            VIRTIO_BLK_T_DISCARD => spans(ram, readable, 0, Operation::Discard)?,
            VIRTIO_BLK_T_WRITE_ZEROES => spans(ram, readable, UNMAP, Operation::WriteZeroes)?,
            _ => Operation::Unsupported,
        };
        // If memory was lost, zeros may have been read instead of the request.
        if ram.is_lost() { Err(Malformed::MemoryLost) } else { Ok(()) }
    }

    /// Returns the total length of the ranges of a discard or write-zeroes request.
    pub(crate) fn span_bytes(&self) -> u64 {
        match &self.operation {
            Operation::Discard(spans) | Operation::WriteZeroes(spans) => {
                spans.iter().map(|span| span.range.length).sum()
            }
            _ => 0,
        }
    }
}

/// A position in a list of segments, from which bytes are copied in order.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'segments> {
    segments: &'segments [Segment],
    /// Bytes of the first segment that precede the position.
    passed: u32,
}

impl<'segments> Cursor<'segments> {
    pub(crate) fn new(segments: &'segments [Segment]) -> Self {
        Self { segments, passed: 0 }
    }

    /// Fills `into` with the bytes that are left. Returns their number.
    pub(crate) fn copy_in(&mut self, ram: &Ram, into: &mut [u8]) -> Result<usize, Malformed> {
        let mut filled = 0;
        while let Some((address, count)) = self.piece(into.len() - filled) {
            let piece = &mut into[filled..filled + count];
            ram.copy_in(piece, address).map_err(|_| Malformed::Unreadable)?;
            filled += count;
        }
        Ok(filled)
    }

    /// Copies `from` to the position as far as there is room. Returns the number of bytes copied.
    pub(crate) fn copy_out(&mut self, ram: &Ram, from: &[u8]) -> Result<usize, Malformed> {
        let mut taken = 0;
        while let Some((address, count)) = self.piece(from.len() - taken) {
            let piece = &from[taken..taken + count];
            ram.copy_out(piece, address).map_err(|_| Malformed::Unreadable)?;
            taken += count;
        }
        Ok(taken)
    }

    /// Returns the next contiguous range of at most `count_max` bytes, or `None` at the end or if
    /// `count_max` is 0.
    fn piece(&mut self, count_max: usize) -> Option<(GuestAddress, usize)> {
        loop {
            let (first, others) = self.segments.split_first()?;
            let left = first.bytes - self.passed;
            if left == 0 {
                (self.segments, self.passed) = (others, 0);
                continue;
            }
            let count = left.min(u32::try_from(count_max).unwrap_or(u32::MAX));
            if count == 0 {
                return None;
            }
            let address = first.address.unchecked_add(u64::from(self.passed));
            self.passed += count;
            return Some((address, usize::try_from(count).ok()?));
        }
    }

    /// Appends the segments after the position to `segments`.
    fn rest(&self, segments: &mut Vec<Segment>) {
        let Some((first, others)) = self.segments.split_first() else { return };
        let address = first.address.unchecked_add(u64::from(self.passed));
        segments.push(Segment { address, bytes: first.bytes - self.passed });
        segments.extend_from_slice(others);
    }
}

/// Removes the last byte of the segments and returns its address.
fn take_last_byte(segments: &mut Vec<Segment>) -> Option<GuestAddress> {
    loop {
        let last = segments.last_mut()?;
        if last.bytes > 0 {
            last.bytes -= 1;
            return last.address.checked_add(u64::from(last.bytes));
        }
        segments.pop();
    }
}

fn check_all_inside(ram: &Ram, segments: &[Segment], access: Permissions) -> Result<(), Malformed> {
    segments.iter().try_for_each(|segment| {
        let count = usize::try_from(segment.bytes).map_err(|_| Malformed::Unreadable)?;
        check_inside(ram, segment.address, count, access)
    })
}

fn check_inside(
    ram: &Ram,
    address: GuestAddress,
    count: usize,
    access: Permissions,
) -> Result<(), Malformed> {
    let is_inside = count == 0 || ram.check_range(address, count, access);
    if is_inside { Ok(()) } else { Err(Malformed::Unreadable) }
}

/// Returns the byte range of a read or a write.
fn transfer(sector: u64, data: &[Segment]) -> Result<ByteRange, &'static str> {
    let start = sector.checked_mul(SECTOR_BYTES).ok_or("the sector number is out of range")?;
    let length: u64 = data.iter().map(|segment| u64::from(segment.bytes)).sum();
    if !length.is_multiple_of(SECTOR_BYTES) {
        return Err("the length is not a multiple of the sector size");
    }
    Ok(ByteRange::new(start, length))
}

/// Reads the ranges that follow a header. `flags` is a mask of the allowed flags.
fn spans(
    ram: &Ram,
    mut readable: Cursor<'_>,
    flags: u32,
    operation: fn(Vec<Span>) -> Operation,
) -> Result<Operation, Malformed> {
    // One extra byte detects a list that is too long.
    let mut bytes = [0; SPAN_COUNT_MAX * SPAN_BYTES + 1];
    let count = readable.copy_in(ram, &mut bytes)?;
    if count == 0 || !count.is_multiple_of(SPAN_BYTES) {
        return Ok(Operation::Invalid("invalid number or length of ranges"));
    }
    let mut spans = Vec::with_capacity(SPAN_COUNT_MAX);
    for raw in bytes[..count].chunks_exact(SPAN_BYTES) {
        let field =
            |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let sector = u64::from(field(0)) | u64::from(field(4)) << 32;
        let length = u64::from(field(8)) * SECTOR_BYTES;
        let own_flags = field(12);
        if own_flags & !flags != 0 {
            return Ok(Operation::Unsupported);
        }
        let Some(start) = sector.checked_mul(SECTOR_BYTES) else {
            return Ok(Operation::Invalid("the sector number is out of range"));
        };
        if length > SPAN_BYTES_MAX {
            return Ok(Operation::Invalid("the range exceeds the advertised maximum"));
        }
        let may_unmap = own_flags & UNMAP != 0;
        spans.push(Span { range: ByteRange::new(start, length), may_unmap });
    }
    Ok(operation(spans))
}

#[cfg(test)]
mod tests {
    use vm_memory::Bytes;

    use super::*;

    const HEADER_AT: u64 = 0x100;

    fn ram_with(kind: u32, sector: u64, after_header: &[u8]) -> Ram {
        let ram = Ram::of_bytes(0x10000);
        let mut raw = kind.to_le_bytes().to_vec();
        raw.extend([0; 4]);
        raw.extend(sector.to_le_bytes());
        raw.extend_from_slice(after_header);
        ram.write_slice(&raw, GuestAddress(HEADER_AT)).expect("inside");
        ram
    }

    fn segment(address: u64, bytes: u32) -> Segment {
        Segment { address: GuestAddress(address), bytes }
    }

    fn read(ram: &Ram, readable: &[Segment], writable: &[Segment]) -> Result<Request, Malformed> {
        let chain = Chain { readable: readable.to_vec(), writable: writable.to_vec() };
        let mut request = Request::default();
        request.read(ram, &chain).map(|()| request)
    }

    #[test]
    fn a_header_and_its_data_may_lie_in_any_pieces() {
        let ram = ram_with(VIRTIO_BLK_T_OUT, 3, &[]);
        let pieces = [segment(HEADER_AT, 10), segment(HEADER_AT + 10, 262), segment(0x400, 256)];
        let request = read(&ram, &pieces, &[segment(0x800, 1)]).expect("a request");
        assert_eq!(request.operation, Operation::Write(ByteRange::new(1536, 512)));
        assert_eq!(request.data, [segment(HEADER_AT + 16, 256), segment(0x400, 256)]);
        assert_eq!(request.status, GuestAddress(0x800));
    }

    #[test]
    fn the_status_is_the_last_byte_that_may_be_written() {
        let ram = ram_with(VIRTIO_BLK_T_IN, 1, &[]);
        let writable = [segment(0x400, 513), segment(0x800, 0)];
        let request = read(&ram, &[segment(HEADER_AT, 16)], &writable).expect("a request");
        assert_eq!(request.operation, Operation::Read(ByteRange::new(512, 512)));
        assert_eq!(
            (request.status, &request.data[..]),
            (GuestAddress(0x600), &[segment(0x400, 512)][..])
        );
    }

    #[track_caller]
    fn check_malformed(readable: &[Segment], writable: &[Segment], expected: Malformed) {
        let ram = ram_with(VIRTIO_BLK_T_IN, 0, &[]);
        assert_eq!(read(&ram, readable, writable).map(|_| ()), Err(expected));
    }

    #[test]
    fn what_cannot_be_a_request_is_refused() {
        let (header, status) = (segment(HEADER_AT, 16), segment(0x800, 1));
        check_malformed(&[segment(HEADER_AT, 15)], &[status], Malformed::Incomplete);
        check_malformed(&[header], &[], Malformed::Incomplete);
        check_malformed(&[header], &[segment(0x800, 0)], Malformed::Incomplete);
        check_malformed(&[header], &[segment(u64::MAX, 512), status], Malformed::Unreadable);
        check_malformed(&[header], &[segment(0xFF00, 512), status], Malformed::Unreadable);
        check_malformed(&[header], &[segment(0x10000, 1)], Malformed::Unreadable);
        check_malformed(&[segment(0xFFFFF, 16)], &[status], Malformed::Unreadable);
    }

    fn span(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
        let mut raw = sector.to_le_bytes().to_vec();
        raw.extend(sectors.to_le_bytes());
        raw.extend(flags.to_le_bytes());
        raw
    }

    #[track_caller]
    fn check_spans(kind: u32, raw: &[u8], expected: &Operation) {
        let ram = ram_with(kind, 0, raw);
        let bytes = 16 + u32::try_from(raw.len()).expect("short");
        let request = read(&ram, &[segment(HEADER_AT, bytes)], &[segment(0x800, 1)]);
        let found = request.expect("a request").operation;
        match expected {
            Operation::Invalid(_) => assert!(matches!(found, Operation::Invalid(_)), "{found:?}"),
            _ => assert_eq!(&found, expected),
        }
    }

    #[test]
    fn ranges_are_taken_with_their_flags() {
        let range = ByteRange::new(512, 1024);
        let spans = |may_unmap| vec![Span { range, may_unmap }];
        check_spans(VIRTIO_BLK_T_DISCARD, &span(1, 2, 0), &Operation::Discard(spans(false)));
        check_spans(
            VIRTIO_BLK_T_WRITE_ZEROES,
            &span(1, 2, 1),
            &Operation::WriteZeroes(spans(true)),
        );
        check_spans(VIRTIO_BLK_T_DISCARD, &span(1, 2, 1), &Operation::Unsupported);
        check_spans(VIRTIO_BLK_T_WRITE_ZEROES, &span(1, 2, 2), &Operation::Unsupported);
    }

    #[test]
    fn ranges_that_cannot_be_are_refused() {
        let invalid = Operation::Invalid("");
        check_spans(VIRTIO_BLK_T_DISCARD, &[], &invalid);
        check_spans(VIRTIO_BLK_T_DISCARD, &span(1, 2, 0)[..15], &invalid);
        check_spans(VIRTIO_BLK_T_DISCARD, &span(u64::MAX, 1, 0), &invalid);
        check_spans(VIRTIO_BLK_T_DISCARD, &span(0, u32::MAX, 0), &invalid);
        check_spans(VIRTIO_BLK_T_DISCARD, &span(1, 2, 0).repeat(SPAN_COUNT_MAX + 1), &invalid);
    }

    #[test]
    fn bytes_travel_in_order_over_pieces() {
        let ram = ram_with(0, 0, &[]);
        let segments = [segment(0x400, 3), segment(0x500, 0), segment(0x600, 5)];
        let mut cursor = Cursor::new(&segments);
        assert_eq!(cursor.copy_out(&ram, b"abcd"), Ok(4));
        assert_eq!(cursor.copy_out(&ram, b"efghij"), Ok(4));
        let mut found = [0; 10];
        assert_eq!(Cursor::new(&segments).copy_in(&ram, &mut found), Ok(8));
        assert_eq!(&found, b"abcdefgh\0\0");
    }
}
